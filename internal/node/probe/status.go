package probe

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
)

const (
	// refresh is the interval at which an unchanged result is written again, to show that the probe is alive.
	// Any other write includes the results that are older than half of it.
	refresh = 10 * time.Minute
	// wordsEvery is the interval at which a result is written if only its message changes.
	wordsEvery = 10 * time.Second
)

// Status returns the status that a NodePodProbe must have, whether it must be written now, and when to check
// again even if no result changes, or 0 if that is not needed.
func Status(
	object *appsv1alpha1.NodePodProbe, probers map[Key]*Prober, now time.Time,
) (want appsv1alpha1.NodePodProbeStatus, write bool, after time.Duration) {
	is := map[Key]appsv1alpha1.ContainerProbeState{}
	for i := range object.Status.PodProbeStatuses {
		pod := &object.Status.PodProbeStatuses[i]
		for j := range pod.ProbeStates {
			is[Key{types.UID(pod.UID), pod.ProbeStates[j].Name}] = pod.ProbeStates[j]
		}
	}

	left := len(is) // entries of probes that no longer exist
	fresh := map[Key]appsv1alpha1.ContainerProbeState{}
	pods := map[types.UID]int{}
	all := Definitions(object)
	most := podprobemarker.MessageBytes(len(all))
	for _, d := range all {
		p := probers[d.Key]
		if p == nil || p.State == "" {
			continue
		}
		entry, due, wait := p.entry(is[d.Key], most, now)
		if write = write || due; !due {
			if wait < refresh/2 && is[d.Key].Message == entry.Message {
				fresh[d.Key] = entry
			}
			entry = is[d.Key]
			if after == 0 || wait < after {
				after = wait
			}
		}
		if _, found := is[d.Key]; found {
			left--
		}
		at, found := pods[d.Pod]
		if !found {
			at = len(want.PodProbeStatuses)
			pods[d.Pod] = at
			want.PodProbeStatuses = append(want.PodProbeStatuses,
				appsv1alpha1.PodProbeStatus{
					Name:      d.PodName,
					Namespace: d.Namespace,
					UID:       string(d.Pod),
				})
		}
		states := &want.PodProbeStatuses[at].ProbeStates
		*states = append(*states, entry)
	}

	if write = write || left > 0; !write {
		return want, false, after
	}

	for i := range want.PodProbeStatuses {
		pod := &want.PodProbeStatuses[i]
		for j := range pod.ProbeStates {
			if entry, found := fresh[Key{types.UID(pod.UID), pod.ProbeStates[j].Name}]; found {
				pod.ProbeStates[j] = entry
			}
		}
	}

	return want, true, after
}

// entry returns the entry of a probe for the status, given the existing entry, and whether it must be written
// now. If not, wait is the time until then. most is the maximum length of the message as JSON.
func (p *Prober) entry(
	is appsv1alpha1.ContainerProbeState, most int, now time.Time,
) (entry appsv1alpha1.ContainerProbeState, due bool, wait time.Duration) {
	entry = appsv1alpha1.ContainerProbeState{
		Name:               p.Name,
		State:              p.State,
		Message:            wording.Clip(p.Message, most),
		Target:             p.target,
		LastProbeTime:      metav1.NewTime(p.Probed.Truncate(time.Second)),
		LastTransitionTime: metav1.NewTime(p.Changed.Truncate(time.Second)),
	}
	words := is.Message != entry.Message
	age := now.Sub(is.LastProbeTime.Time)
	every := refresh
	if words {
		every = wordsEvery
	}
	seen := words || !entry.LastProbeTime.Equal(&is.LastProbeTime) // since the last write
	moved := is.State != p.State || !entry.LastTransitionTime.Equal(&is.LastTransitionTime)
	if moved || seen && (age >= every || age < -wordsEvery) { // or the clock was set back
		return entry, true, 0
	}
	if !seen { // the next attempt does not trigger a pass
		return entry, false, max(every-age, time.Minute)
	}

	return entry, false, max(every-age, time.Millisecond)
}
