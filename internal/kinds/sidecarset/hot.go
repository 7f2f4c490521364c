package sidecarset

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// A hot upgrade uses two containers. One works, and the other stands by with an empty image. The half that
// stands by gets the new image and takes over from the other in its postStart hook. Then the other half gets
// the empty image, which is called a reset. Both know their roles from their versions, which are annotations:
//
//	version > 0, alt = 0    it works alone
//	version > alt > 0       it is the new one, and takes over
//	version < alt           it is outdated, and idles

// hotChange is what an upgrade or a reset changes in one pair.
type hotChange struct {
	// container is the half that gets the image.
	container, image string
	// working is the half that works from now on. If it is empty, this does not change.
	working string
	// annotations are the versions to set.
	annotations map[string]string
}

// hotUpgrade returns the change that brings a pair to the SidecarSet's image, or nil if there is none.
// waiting says what has to happen first.
func (p *planner) hotUpgrade(
	pod *corev1.Pod, c *appsv1beta1.SidecarContainer, working WorkingContainers,
) (change *hotChange, waiting string) {
	empty := c.UpgradeStrategy.HotUpgradeEmptyImage
	works, standby := working[c.Name], standbyOf(c.Name, working)
	switch {
	case ImageOf(pod, works) == c.Image:
		return nil, "" // if the other half still has another image, a reset ends it
	case ImageOf(pod, standby) == c.Image && ImageOf(pod, works) != empty && p.serves(pod, works):
		return nil, fmt.Sprintf(
			"container %s took over from %s, whose image is wanted again: that one must be reset first",
			works, standby)
	case ImageOf(pod, standby) == c.Image:
		return retreat(works, standby, empty), ""
	}
	target, other := p.hotTarget(pod, c, working)
	version := p.in.Set.ResourceVersion
	return &hotChange{container: target, image: c.Image, working: target, annotations: map[string]string{
		pub.SidecarSetVersionPrefix + target:    version,
		pub.SidecarSetVersionAltPrefix + target: pod.Annotations[pub.SidecarSetVersionPrefix+other],
		pub.SidecarSetVersionAltPrefix + other:  version,
	}}, ""
}

// retreat returns the change that makes the half work that already runs the wanted image, and ends the other
// half, whose upgrade is no longer wanted.
func retreat(failing, keeper, empty string) *hotChange {
	return &hotChange{container: failing, image: empty, working: keeper, annotations: map[string]string{
		pub.SidecarSetVersionPrefix + failing:   "0",
		pub.SidecarSetVersionAltPrefix + keeper: "0",
	}}
}

// hotTarget returns the half to upgrade and the other half.
func (p *planner) hotTarget(
	pod *corev1.Pod, c *appsv1beta1.SidecarContainer, working WorkingContainers,
) (target, other string) {
	first, second := HotNames(c.Name)
	empty := c.UpgradeStrategy.HotUpgradeEmptyImage
	switch {
	case ImageOf(pod, first) == empty:
		return first, second
	case ImageOf(pod, second) == empty:
		return second, first
	case p.serves(pod, first) && !p.serves(pod, second):
		return second, first
	case p.serves(pod, second) && !p.serves(pod, first):
		return first, second
	}

	return standbyOf(c.Name, working), working[c.Name]
}

// serves reports whether a half is ready and runs the image that it should run.
func (p *planner) serves(pod *corev1.Pod, name string) bool {
	behind, _ := consistency(pod, p.in.Set.Name, []string{name}, false)
	_, status := containerOf(pod, name)
	return behind == "" && status != nil && status.Ready
}

// ImageOf returns the image of the pod's container with the given name, or "" if there is none.
func ImageOf(pod *corev1.Pod, name string) string {
	c, _ := containerOf(pod, name)
	if c == nil {
		return ""
	}
	return c.Image
}

// resets returns the changes that end the outdated halves of pairs whose upgrade is complete. waiting says
// why an upgrade is not complete.
func (p *planner) resets(info *podInfo) (changes []*hotChange, waiting string) {
	pod, working, standby := info.Pod, info.working, map[string]bool{}
	for i := range p.in.Set.Spec.Containers {
		c := &p.in.Set.Spec.Containers[i]
		if !IsHot(c) {
			continue
		}
		standby[standbyOf(c.Name, working)] = true
		if atRest(pod, c.Name, working) {
			continue // it only has another empty image, of a former spec or from a webhook
		}
		if change := p.resetOf(pod, c, working); change != nil {
			changes = append(changes, change)
		}
	}

	if len(changes) == 0 {
		return nil, ""
	}

	var names []string
	for _, name := range PodNames(&p.in.Set.Spec) {
		if !standby[name] {
			names = append(names, name)
		}
	}

	if behind, _ := consistency(pod, p.in.Set.Name, names,
		len(nativeSidecars(&p.in.Set.Spec)) > 0); behind != "" {
		return nil, "a hot upgrade is under way: " + behind
	}
	if podReady(pod) {
		return changes, ""
	}

	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		if status := findStatus(pod.Status.ContainerStatuses, name); !standby[name] &&
			(status == nil || !status.Ready) {
			return nil, fmt.Sprintf("a hot upgrade is under way: container %s is not ready", name)
		}
	}

	return changes, ""
}

// atRest reports whether no hot upgrade of the pair is under way, which means that the working half does not
// know of another one.
func atRest(pod *corev1.Pod, name string, working WorkingContainers) bool {
	return pod.Annotations[pub.SidecarSetVersionAltPrefix+working[name]] == "0"
}

// overtaken returns the resets of pairs whose former image is wanted again after the other half has taken
// over. Both halves are in use then, and the reset of the whole pod may have to wait for the very upgrade
// that waits for this reset.
func (p *planner) overtaken(pod *corev1.Pod, working WorkingContainers) []*hotChange {
	var changes []*hotChange
	for i := range p.in.Set.Spec.Containers {
		c := &p.in.Set.Spec.Containers[i]
		if !IsHot(c) {
			continue
		}
		if _, waiting := p.hotUpgrade(pod, c, working); waiting != "" {
			if change := p.resetOf(pod, c, working); change != nil {
				changes = append(changes, change)
			}
		}
	}

	return changes
}

// resetOf returns the change that ends the half that stands by, or nil if that half already has its empty
// image.
func (p *planner) resetOf(
	pod *corev1.Pod, c *appsv1beta1.SidecarContainer, working WorkingContainers,
) *hotChange {
	half, empty := standbyOf(c.Name, working), c.UpgradeStrategy.HotUpgradeEmptyImage
	if empty == "" || ImageOf(pod, half) == empty {
		return nil
	}
	return &hotChange{container: half, image: empty, annotations: map[string]string{
		pub.SidecarSetVersionPrefix + half:               "0",
		pub.SidecarSetVersionAltPrefix + working[c.Name]: "0",
	}}
}
