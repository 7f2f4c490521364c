package sidecarset

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// A hot upgrade is played by two containers, of which one works and the other stands by with an empty image.
// The half that stands by gets the new image, takes over from the other in its postStart hook, and then the
// other gets the empty image (reset). Both know by their versions, which are annotations, what they are
// (SS-241):
//
//	version > 0, alt = 0    it works alone
//	version > alt > 0       it is the new one, and takes over
//	version < alt           it is outdated, and idles

// hotChange is what an upgrade or a reset changes of one pair.
type hotChange struct {
	// container gets the image.
	container, image string
	// working is the half that works from now on; empty leaves it.
	working string
	// annotations are the versions.
	annotations map[string]string
}

// hotUpgrade says what brings a pair to the SidecarSet's image, nil if nothing is to be changed, or what has
// to be waited for first (SS-240, SS-241, SS-D05).
func (p *planner) hotUpgrade(
	pod *corev1.Pod, c *appsv1beta1.SidecarContainer, working WorkingContainers,
) (change *hotChange, waiting string) {
	empty := c.UpgradeStrategy.HotUpgradeEmptyImage
	works, standby := working[c.Name], standbyOf(c.Name, working)
	switch {
	case ImageOf(pod, works) == c.Image:
		return nil, "" // if the other has another image still, a reset ends it
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

// retreat makes the half work that runs the wanted image already, and ends the other, whose upgrade is not
// wanted any more (SS-D05).
func retreat(failing, keeper, empty string) *hotChange {
	return &hotChange{container: failing, image: empty, working: keeper, annotations: map[string]string{
		pub.SidecarSetVersionPrefix + failing:   "0",
		pub.SidecarSetVersionAltPrefix + keeper: "0",
	}}
}

// hotTarget chooses the half to upgrade.
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

// serves tells whether a half is ready and runs what it should.
func (p *planner) serves(pod *corev1.Pod, name string) bool {
	behind, _ := consistency(pod, p.in.Set.Name, []string{name}, false)
	_, status := containerOf(pod, name)
	return behind == "" && status != nil && status.Ready
}

// ImageOf is the image of the pod's container of that name, empty if there is none.
func ImageOf(pod *corev1.Pod, name string) string {
	c, _ := containerOf(pod, name)
	if c == nil {
		return ""
	}
	return c.Image
}

// resets says which pairs have done their upgrade, so that the outdated half can end; waiting says why those
// that are upgraded are not done.
func (p *planner) resets(info *podInfo) (changes []*hotChange, waiting string) {
	pod, working, standby := info.Pod, info.working, map[string]bool{}
	for i := range p.in.Set.Spec.Containers {
		c := &p.in.Set.Spec.Containers[i]
		if !IsHot(c) {
			continue
		}
		standby[standbyOf(c.Name, working)] = true
		if atRest(pod, c.Name, working) {
			continue // it only has another empty image: that of a former spec, or what a webhook made of it
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

// atRest tells whether no hot upgrade of the pair is under way: the half that works does not know of another
// one.
func atRest(pod *corev1.Pod, name string, working WorkingContainers) bool {
	return pod.Annotations[pub.SidecarSetVersionAltPrefix+working[name]] == "0"
}

// overtaken are resets of pairs whose former image is wanted again after the other half has taken over. Both
// halves are taken then, and the reset of the whole pod may have to wait for just the upgrade that waits for
// this.
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

// resetOf ends the half that stands by, nil if it has its empty image.
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
