package sidecarset

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// PodState is what a plan sees of one pod.
type PodState struct {
	Pod *corev1.Pod
	// Hash is that of the SidecarSet that the pod was injected from or upgraded to last.
	Hash string
	// Matched: the SidecarSet is in force there (SS-200). Of others nothing more is said.
	Matched bool
	// Updated: the pod has the latest hash. Upgradable: images are all that differs (SS-211).
	Updated, Upgradable bool
	// Underway: the pod was upgraded once, and may not have come out of that yet.
	Underway bool
	// Ready is as in SS-216, Available as the budget counts (SS-218), and Serves one that is ready and lacks
	// nothing but resources (SS-219).
	Ready, Available, Serves bool
	// Behind says which container does not run yet what it should, NotReady why the pod is not ready.
	Behind, NotReady string
	// Working are the halves of hot-upgrade pairs that work.
	Working WorkingContainers
}

// PodInspector sees pods as plans for a SidecarSet do.
type PodInspector struct{ planner planner }

// NewLooker looks with what the snapshot has beside its pods.
func NewLooker(s Snapshot) *PodInspector {
	l := &PodInspector{planner{in: s}}
	l.planner.prepare()
	return l
}

// Look looks at an active pod that lists the SidecarSet.
func (l *PodInspector) Look(pod *corev1.Pod) PodState {
	info := l.planner.examine(pod)
	return PodState{Pod: pod, Hash: info.record.Hash, Matched: info.matched, Updated: info.updated,
		Upgradable: info.upgradable, Underway: info.underway, Ready: info.ready, Available: info.available(),
		Serves: info.serves(), Behind: info.behind,
		NotReady: info.notReady, Working: info.working}
}

// Lacks says which images the containers of the pod are still to be given, and which resources, where they
// can be resized; empty for none.
func (l *PodInspector) Lacks(pod *corev1.Pod) (images, resources string) {
	if cold, hot := l.planner.wanted(pod); len(cold) > 0 || len(hot) > 0 {
		images = fmt.Sprint(cold, hot)
	}
	if sizes := l.planner.quantities(pod); l.planner.in.Features.Resize && len(sizes) > 0 {
		resources = fmt.Sprint(sizes)
	}
	return images, resources
}

// Upgrading says which sidecar of the pod, of whatever SidecarSet, does not run yet what it was upgraded to
// in place; empty if there is none (PUB-056).
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
				continue // what the reference recorded says too little (PUB-D1)
			}
			if lag := lags(pod, name, states[set], false); lag != "" {
				return lag, nil
			}
		}
	}

	return "", nil
}
