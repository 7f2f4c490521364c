package probe

import (
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
)

const (
	// refresh is how often a result is written again that has not changed, so that it is seen to be alive
	// (PPM-093). A write that is made anyway takes along what is older than half of it.
	refresh = 10 * time.Minute
	// wordsEvery is how often a result is written of which nothing but the message changes.
	wordsEvery = 10 * time.Second
)

// Status is what the status of a NodePodProbe shall be, whether that is worth a write, and when to look again
// although no result changes; 0 is not at all.
func Status(
	object *appsv1alpha1.NodePodProbe, probers map[Key]*Prober, now time.Time,
) (want appsv1alpha1.NodePodProbeStatus, write bool,
	after time.Duration) {
	is := map[Key]appsv1alpha1.ContainerProbeState{}
	for i := range object.Status.PodProbeStatuses {
		pod := &object.Status.PodProbeStatuses[i]
		for j := range pod.ProbeStates {
			is[Key{types.UID(pod.UID), pod.ProbeStates[j].Name}] = pod.ProbeStates[j]
		}
	}

	left := len(is) // entries of probes that are not there any more
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

// entry is what the status shall have of a probe, given what it has, and whether that is worth a write now;
// if not, in how long it will be. most is how long the message may be as JSON.
func (p *Prober) entry(
	is appsv1alpha1.ContainerProbeState, most int, now time.Time,
) (entry appsv1alpha1.ContainerProbeState, due bool,
	wait time.Duration) {
	entry = appsv1alpha1.ContainerProbeState{
		Name:               p.Name,
		State:              p.State,
		Message:            clip(p.Message, most),
		LastProbeTime:      metav1.NewTime(p.Probed.Truncate(time.Second)),
		LastTransitionTime: metav1.NewTime(p.Changed.Truncate(time.Second)),
	}
	words := is.Message != entry.Message
	age := now.Sub(is.LastProbeTime.Time)
	every := refresh
	if words {
		every = wordsEvery
	}
	seen := words || !entry.LastProbeTime.Equal(&is.LastProbeTime) // since that was written
	moved := is.State != p.State || !entry.LastTransitionTime.Equal(&is.LastTransitionTime)
	if moved || seen && (age >= every || age < -wordsEvery) { // the clock was set back
		return entry, true, 0
	}
	if !seen { // nobody tells of the next attempt
		return entry, false, max(every-age, time.Minute)
	}

	return entry, false, max(every-age, time.Millisecond)
}

// clip cuts a message at a character, so that it is no longer than that as JSON: what must be escaped counts
// as often as it has bytes then.
func clip(message string, most int) string {
	length := 0
	for i, r := range message {
		size := utf8.RuneLen(r)
		switch {
		case r == '"' || r == '\\' || r == '\n' || r == '\r' || r == '\t':
			size = 2
		case r < ' ' || r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029':
			size = 6
		}
		if length += size; length > most {
			return message[:i]
		}
	}

	return message
}
