package sidecarset

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// PodState is what a plan knows about one pod.
type PodState struct {
	Pod *corev1.Pod
	// Hash is the hash of the SidecarSet that the pod was injected from or last upgraded to.
	Hash string
	// Matched reports that the SidecarSet applies to the pod (SS-200). For other pods, nothing more is set.
	Matched bool
	// Updated reports that the pod has the latest hash. Upgradable reports that only images differ (SS-211).
	Updated, Upgradable bool
	// Underway reports that the pod was upgraded before and may not have completed that upgrade.
	Underway bool
	// Ready is defined by SS-216. Available reports that the pod counts as available for the budget (SS-218).
	// Serves reports that it is ready and lacks nothing but resources (SS-219).
	Ready, Available, Serves bool
	// Behind says which container does not yet run what it should. NotReady says why the pod is not ready.
	Behind, NotReady string
	// Working maps hot-upgrade pairs to the half that works.
	Working WorkingContainers
}

// PodInspector looks at pods as plans for a SidecarSet do.
type PodInspector struct{ planner planner }

// NewPodInspector returns a PodInspector that uses everything in the snapshot except its pods.
func NewPodInspector(s Snapshot) *PodInspector {
	l := &PodInspector{planner{in: s}}
	l.planner.prepare()
	return l
}

// Inspect returns the state of an active pod that lists the SidecarSet.
func (l *PodInspector) Inspect(pod *corev1.Pod) PodState {
	info := l.planner.examine(pod)
	return PodState{Pod: pod, Hash: info.record.Hash, Matched: info.matched, Updated: info.updated,
		Upgradable: info.upgradable, Underway: info.underway, Ready: info.ready, Available: info.available(),
		Serves: info.serves(), Behind: info.behind,
		NotReady: info.notReady, Working: info.working}
}

// Lacks describes the images that containers of the pod still have to get, and the resources if these can be
// resized. They are empty if nothing is missing.
func (l *PodInspector) Lacks(pod *corev1.Pod) (images, resources string) {
	if cold, hot := l.planner.wanted(pod); len(cold) > 0 || len(hot) > 0 {
		images = fmt.Sprint(cold, hot)
	}
	if sizes := l.planner.quantities(pod); l.planner.in.Features.Resize && len(sizes) > 0 {
		resources = fmt.Sprint(sizes)
	}
	return images, resources
}

// Upgrading describes a sidecar of the pod, of any SidecarSet, that does not yet run what it was upgraded to
// in place. It returns "" if there is none (PUB-056).
func Upgrading(pod *corev1.Pod) (string, error) {
	states, err := ReadStates(pod.Annotations[pub.SidecarSetInPlaceUpdateState])
	if err != nil {
		return "", err
	}

	for _, set := range slices.Sorted(maps.Keys(states)) {
		for _, name := range slices.Sorted(maps.Keys(states[set].LastContainerStatuses)) {
			container, status := containerOf(pod, name)
			if before := states[set].LastContainerStatuses[name]; container == nil || status == nil ||
				before.Image == "" {
				continue // the reference did not record enough
			}
			if lag := lags(pod, name, states[set]); lag != "" {
				return lag, nil
			}
		}
	}

	return "", nil
}
