package sidecarset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// podInfo is what a plan knows of a pod.
type podInfo struct {
	Pod *corev1.Pod
	// matched: the SidecarSet is in force there; else why says what is missing.
	matched bool
	why     string
	// record is what was injected or upgraded last, unreadable why the annotations cannot be read.
	record     pub.SidecarSetRecord
	unreadable error
	// updated: the pod has the latest hash. upgradable: images are all that differs.
	updated, upgradable bool
	// resizing are the hashes of upgrades that gave the pod resources, maybe, and nothing else yet.
	resizing []string
	// behind says which container does not run yet what it should, empty if the pod is consistent; busy says
	// the same of one that is ready, so that the pod waits.
	behind, busy string
	// underway: the pod was upgraded once, and is unavailable: it may not have come out of that upgrade yet,
	// be it to the latest hash or to a former one.
	underway bool
	// held: only resources are missing (SS-W02). If it is ready, it serves until another upgrade restarts its
	// containers.
	held bool
	// ready as in SS-216; notReady says why not.
	ready    bool
	notReady string
	working  WorkingContainers
}

// available: consistent and ready, as the budget counts.
func (i *podInfo) available() bool { return i.behind == "" && i.ready }

// serves: it is ready and stays so, though it is not available for want of resources.
func (i *podInfo) serves() bool { return i.held && i.ready }

// down: a former upgrade has left it out of service.
func (i *podInfo) down() bool { return i.underway && !i.serves() }

// examine looks at an active pod that lists the SidecarSet.
func (p *planner) examine(pod *corev1.Pod) *podInfo {
	info := &podInfo{Pod: pod}
	if info.why = p.unmatched(pod); info.why != "" {
		return info
	}

	working, err := ReadWorkingContainers(pod.Annotations[pub.SidecarSetWorkingHotUpgradeContainer])
	if err != nil {
		working = WorkingContainers{}
	}
	info.working = working
	if info.why = lacking(&p.in.Set.Spec, pod, working); info.why != "" {
		return info
	}

	info.matched = true
	withImage, err := ReadRecords(pod.Annotations[pub.SidecarSetHash])
	withoutImage, errWithout := ReadRecords(pod.Annotations[pub.SidecarSetHashWithoutImage])
	switch {
	case err != nil:
		info.unreadable = err
	case errWithout != nil:
		info.unreadable = errWithout
	}
	info.record = withImage[p.in.Set.Name]
	info.upgradable = p.hashWithoutImage != "" && withoutImage[p.in.Set.Name].Hash == p.hashWithoutImage
	info.behind, info.busy = p.consistency(pod)
	info.notReady = p.unready(pod, working)
	info.ready = info.notReady == ""
	states, err := ReadStates(pod.Annotations[pub.SidecarSetInPlaceUpdateState])
	if err != nil {
		states = nil // consistency says so
	}
	state, begun := states[p.in.Set.Name]
	info.resizing = state.Resizing
	info.updated = p.hash != "" && info.record.Hash == p.hash && len(info.resizing) == 0
	if begun && info.behind == "" {
		info.behind = p.unresized(pod) // not busy: it may be given other resources meanwhile
		info.held = info.behind != ""
	}
	info.underway = begun && !info.available()
	return info
}

// unmatched says why the selectors do not match the pod.
func (p *planner) unmatched(pod *corev1.Pod) string {
	if !slices.Contains(ReadInjectedList(pod.Annotations[pub.SidecarSetInjectedList]), p.in.Set.Name) {
		return "it does not list the SidecarSet"
	}
	if !p.selector.Matches(labels.Set(pod.Labels)) {
		return "spec.selector does not match its labels"
	}
	if p.in.Set.Spec.NamespaceSelector == nil {
		return ""
	}

	namespace, known := p.in.Namespaces[pod.Namespace]
	if !known || !p.namespaces.Matches(labels.Set(namespace)) {
		return "spec.namespaceSelector does not match its namespace"
	}

	return ""
}

// lacking says what of the SidecarSet the pod does not have, empty if it is structurally consistent (SS-203,
// SS-W01b).
func lacking(spec *appsv1beta1.SidecarSetSpec, pod *corev1.Pod, working WorkingContainers) string {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if !IsHot(c) {
			if find(pod.Spec.Containers, c.Name) == nil {
				return fmt.Sprintf("it has no container %s", c.Name)
			}
			continue
		}
		first, second := HotNames(c.Name)
		for _, name := range []string{first, second} {
			if find(pod.Spec.Containers, name) == nil {
				return fmt.Sprintf("it has no container %s", name)
			}
		}
		if half := working[c.Name]; half != first && half != second {
			return fmt.Sprintf("it does not tell which of %s and %s works", first, second)
		}
	}

	for _, name := range nativeSidecars(spec) {
		if find(pod.Spec.InitContainers, name) == nil {
			return fmt.Sprintf("it has no native sidecar %s", name)
		}
	}

	return ""
}

func find(containers []corev1.Container, name string) *corev1.Container {
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

func findStatus(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// containerOf finds a sidecar in the pod, and its status, whichever list it stands in.
func containerOf(pod *corev1.Pod, name string) (*corev1.Container, *corev1.ContainerStatus) {
	if c := find(pod.Spec.Containers, name); c != nil {
		return c, findStatus(pod.Status.ContainerStatuses, name)
	}
	return find(pod.Spec.InitContainers, name), findStatus(pod.Status.InitContainerStatuses, name)
}

// consistency says which sidecar does not run yet what the pod's spec says, and which of them is ready all
// the same.
func (p *planner) consistency(pod *corev1.Pod) (behind, busy string) {
	return consistency(pod, p.in.Set.Name, PodNames(&p.in.Set.Spec), len(nativeSidecars(&p.in.Set.Spec)) > 0)
}

// consistency looks at sidecars of the pod by the names that they have there.
func consistency(pod *corev1.Pod, set string, names []string, native bool) (behind, busy string) {
	states, err := ReadStates(pod.Annotations[pub.SidecarSetInPlaceUpdateState])
	count := ""
	switch {
	case err != nil:
		count = err.Error()
	case len(pod.Status.ContainerStatuses) != len(pod.Spec.Containers):
		count = fmt.Sprintf("%d of %d containers have a status", len(pod.Status.ContainerStatuses),
			len(pod.Spec.Containers))
	case native:
		want, have := 0, 0
		for i := range pod.Spec.InitContainers {
			if IsNative(&pod.Spec.InitContainers[i]) {
				want++
				if findStatus(pod.Status.InitContainerStatuses, pod.Spec.InitContainers[i].Name) != nil {
					have++
				}
			}
		}
		if want != have {
			count = fmt.Sprintf("%d of %d native sidecars have a status", have, want)
		}
	}
	digests := !slices.ContainsFunc(names, func(name string) bool {
		c, _ := containerOf(pod, name)
		return c != nil && digestOf(c.Image) == ""
	})
	for _, name := range names {
		lag := count
		if lag == "" {
			lag = lags(pod, name, states[set], digests)
		}
		if lag == "" {
			continue
		}
		if behind == "" {
			behind = lag
		}
		if _, status := containerOf(pod, name); busy == "" && status != nil && status.Ready {
			busy = lag
		}
	}

	return behind, busy
}

// lags says what is missing until a container runs the image of the pod's spec. A container that was upgraded
// by us is held to all that was recorded then; one of the reference, which records image IDs alone, as the
// reference does, but with image names normalised (SS-D03).
func lags(pod *corev1.Pod, name string, state pub.SidecarSetState, digests bool) string {
	container, status := containerOf(pod, name)
	if container == nil {
		return ""
	}
	if status == nil {
		return fmt.Sprintf("container %s has no status yet", name)
	}

	before, recorded := state.LastContainerStatuses[name]
	if recorded && before.Image != "" {
		return inplace.Replaced(pod, name, recordOf(before), state.UpdateTimestamp.Time)
	}
	if inplace.SameImage(status.Image, container.Image) {
		return ""
	}
	if digests {
		if sameDigest(status.ImageID, container.Image) || status.ContainerID == "" {
			return ""
		}
		return fmt.Sprintf("container %s runs %s, not %s", name, status.ImageID, container.Image)
	}
	if recorded && status.ImageID == before.ImageID {
		return fmt.Sprintf("container %s does not run %s yet", name, container.Image)
	}

	return ""
}

func recordOf(s pub.SidecarSetContainerState) inplace.ContainerRecord {
	return inplace.ContainerRecord{ImageID: s.ImageID, ContainerID: s.ContainerID, Image: s.Image,
		RunningImage: s.RunningImage, Overtaken: s.Overtaken}
}

func digestOf(image string) string {
	if !strings.Contains(image, "@") {
		return ""
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return ""
	}
	if digested, ok := named.(reference.Digested); ok {
		return digested.Digest().String()
	}
	return ""
}

// sameDigest compares the repository and digest of what runs with an image that is given by digest.
func sameDigest(imageID, image string) bool {
	if _, after, ok := strings.Cut(imageID, "://"); ok {
		imageID = after
	}
	runs, err := reference.ParseNormalizedNamed(imageID)
	if err != nil {
		return false
	}
	wanted, err := reference.ParseNormalizedNamed(image)
	return err == nil && runs.Name() == wanted.Name() && digestOf(imageID) != "" &&
		digestOf(imageID) == digestOf(image)
}

// unready says why the pod is not ready, empty if it is.
func (p *planner) unready(pod *corev1.Pod, working WorkingContainers) string {
	if pod.Status.Phase != corev1.PodRunning {
		return fmt.Sprintf("it is %s", phaseOf(pod.Status.Phase))
	}
	if ready := readiness.Condition(pod, corev1.PodReady); ready == nil ||
		ready.Status != corev1.ConditionTrue {
		return "it is not Ready"
	}
	return p.standing(pod, working)
}

// standing says which half of a pair stands by without its empty image, in the middle of a hot upgrade.
func (p *planner) standing(pod *corev1.Pod, working WorkingContainers) string {
	for i := range p.in.Set.Spec.Containers {
		c := &p.in.Set.Spec.Containers[i]
		if !IsHot(c) {
			continue
		}
		standby := standbyOf(c.Name, working)
		if atRest(pod, c.Name, working) {
			continue
		}
		if half := find(pod.Spec.Containers, standby); half != nil &&
			half.Image != c.UpgradeStrategy.HotUpgradeEmptyImage {
			return fmt.Sprintf("container %s stands by and does not run its empty image yet", standby)
		}
	}

	return ""
}

func phaseOf(phase corev1.PodPhase) corev1.PodPhase {
	if phase == "" {
		return corev1.PodPending
	}
	return phase
}

// standbyOf is the half of a pair that does not work.
func standbyOf(name string, working WorkingContainers) string {
	first, second := HotNames(name)
	if working[name] == first {
		return second
	}
	return first
}

// UpgradableOf reads the pod's condition: which SidecarSets can be upgraded there; nil if there is none, or
// none that can be read.
func UpgradableOf(pod *corev1.Pod) map[string]bool {
	c := readiness.Condition(pod, pub.SidecarSetUpgradable)
	if c == nil {
		return nil
	}
	var entries map[string]bool
	if json.Unmarshal([]byte(c.Message), &entries) != nil {
		return nil
	}
	return entries
}

// Lists tells whether the pod's condition says anything of the SidecarSet.
func Lists(pod *corev1.Pod, set string) bool {
	_, listed := UpgradableOf(pod)[set]
	return listed
}

// mainFinished tells whether a pod that is to end has no application running any more: the next thing is that
// its sidecars end.
func mainFinished(pod *corev1.Pod) bool {
	if pod.Spec.RestartPolicy != corev1.RestartPolicyNever &&
		pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}

	mains := 0
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if injected(c) {
			continue
		}
		mains++
		status := findStatus(pod.Status.ContainerStatuses, c.Name)
		if status == nil || status.State.Terminated == nil || status.State.Terminated.ExitCode != 0 &&
			pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
			return false
		}
	}

	return mains > 0
}

// injected tells whether a container came from a SidecarSet.
func injected(c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env,
		func(e corev1.EnvVar) bool { return e.Name == pub.SidecarInjectedEnv && e.Value == "true" })
}
