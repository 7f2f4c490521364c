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

// podInfo is what a plan knows about a pod.
type podInfo struct {
	Pod *corev1.Pod
	// matched reports that the SidecarSet applies to the pod. Otherwise why says what is missing.
	matched bool
	why     string
	// record is what was last injected or upgraded. unreadable is why the annotations cannot be parsed.
	record     pub.SidecarSetRecord
	unreadable error
	// updated reports that the pod has the latest hash. upgradable reports that only images differ.
	updated, upgradable bool
	// resizing are the hashes of upgrades that may have changed the pod's resources and nothing else yet.
	resizing []string
	// behind says which container does not yet run what it should. It is empty if the pod is consistent. busy
	// says the same of a container that is ready, in which case the pod waits.
	behind, busy string
	// underway reports that the pod was upgraded before and is unavailable. It may not have completed that
	// upgrade, to the latest hash or to an earlier one.
	underway bool
	// held reports that only resources are missing. If the pod is ready, it serves until another upgrade
	// restarts its containers.
	held bool
	// ready reports whether the pod is ready. notReady says why not.
	ready    bool
	notReady string
	working  WorkingContainers
}

// available reports whether the pod is consistent and ready, and so counts as available for the budget.
func (i *podInfo) available() bool { return i.behind == "" && i.ready }

// serves reports whether the pod is ready and stays so, although it is not available for lack of resources.
func (i *podInfo) serves() bool { return i.held && i.ready }

// down reports whether a former upgrade has left the pod out of service.
func (i *podInfo) down() bool { return i.underway && !i.serves() }

// examine returns what there is to know about an active pod that lists the SidecarSet.
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
		states = nil // consistency reports the error
	}

	state, begun := states[p.in.Set.Name]
	info.resizing = state.Resizing
	info.updated = p.hash != "" && info.record.Hash == p.hash && len(info.resizing) == 0
	if begun && info.behind == "" {
		info.behind = p.unresized(pod) // it is not busy, because it may get other resources meanwhile
		info.held = info.behind != ""
	}
	info.underway = begun && !info.available()
	return info
}

// unmatched returns why the selectors do not match the pod, or "" if they do.
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

// lacking returns what the pod lacks of the SidecarSet, or "" if it is structurally consistent.
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

// containerOf returns a sidecar of the pod and its status, from whichever list contains it.
func containerOf(pod *corev1.Pod, name string) (*corev1.Container, *corev1.ContainerStatus) {
	if c := find(pod.Spec.Containers, name); c != nil {
		return c, findStatus(pod.Status.ContainerStatuses, name)
	}
	return find(pod.Spec.InitContainers, name), findStatus(pod.Status.InitContainerStatuses, name)
}

// consistency returns which sidecar does not yet run what the pod's spec says, and which of those is
// nevertheless ready.
func (p *planner) consistency(pod *corev1.Pod) (behind, busy string) {
	return consistency(pod, p.in.Set.Name, PodNames(&p.in.Set.Spec), len(nativeSidecars(&p.in.Set.Spec)) > 0)
}

// consistency looks at the sidecars with the given names in the pod.
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

	for _, name := range names {
		lag := count
		if lag == "" {
			lag = lags(pod, name, states[set])
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

// lags returns what is missing until a container runs the image in the pod's spec. For a container that this
// manager upgraded, everything that was recorded then counts. For one that the reference upgraded, which
// records only image IDs, the rules of the reference apply, but with normalised image names.
func lags(pod *corev1.Pod, name string, state pub.SidecarSetState) string {
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
	wanted, runs := digestOf(container.Image), digestOf(status.ImageID)
	switch {
	case inplace.SameImage(status.Image, container.Image), wanted != "" && runs == wanted:
		return ""
	case recorded && status.ImageID == before.ImageID:
		return fmt.Sprintf("container %s does not run %s yet", name, container.Image)
	// A runtime may report another digest of the same image, such as that of its configuration. That says something only of an upgrade.
	case recorded && wanted != "" && runs != "":
		return fmt.Sprintf("container %s runs %s, not %s", name, status.ImageID, container.Image)
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
	if _, after, ok := strings.Cut(image, "://"); ok { // of the runtime
		image = after
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

// unready returns why the pod is not ready, or "" if it is.
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

// standing returns which half of a pair stands by without its empty image, in the middle of a hot upgrade.
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

// standbyOf returns the half of a pair that does not work.
func standbyOf(name string, working WorkingContainers) string {
	first, second := HotNames(name)
	if working[name] == first {
		return second
	}
	return first
}

// UpgradableOf returns what the pod's condition says about which SidecarSets can be upgraded. It returns nil
// if there is no condition or if it cannot be parsed.
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

// Lists reports whether the pod's condition mentions the SidecarSet.
func Lists(pod *corev1.Pod, set string) bool {
	_, listed := UpgradableOf(pod)[set]
	return listed
}

// mainFinished reports whether a pod that is meant to end has no running application any more, so that its
// sidecars end next.
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

// injected reports whether a container came from a SidecarSet.
func injected(c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env,
		func(e corev1.EnvVar) bool { return e.Name == pub.SidecarInjectedEnv && e.Value == "true" })
}
