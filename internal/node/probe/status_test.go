package probe

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

func named(name string) func(*appsv1alpha1.ContainerProbe) {
	return func(p *appsv1alpha1.ContainerProbe) { p.Name = name }
}

// PPM-093, PPM-095, PPM-096: the status has a result for each probe that has one, also for two of one
// container. It is written when a state changes, a message does, or it is old; what is old is taken along by
// any write. A message alone is written each ten seconds at most. Entries of probes that are gone go. Nothing
// is written at rest.
func TestWhatIsWritten(t *testing.T) {
	o := object(spec(named("a#1")), spec(named("a#2")), spec(named("b#1")))
	probers := map[Key]*Prober{}
	for _, d := range Definitions(o) {
		probers[d.Key] = NewProber(d, noon)
	}
	first, second := probers[Key{"pod", "a#1"}], probers[Key{"pod", "a#2"}]
	now := noon
	step := func(what string, later time.Duration, written bool, again time.Duration) []appsv1alpha1.ContainerProbeState {
		t.Helper()
		now = now.Add(later)
		status, write, after := Status(o, probers, now)
		if write != written {
			t.Fatalf("%s: the status is written: got %t, want %t", what, write, written)
		}
		if after != again && !write {
			t.Fatalf("%s: the status is looked at again after %s, want %s", what, after, again)
		}
		if write {
			o.Status = status
			if _, write, _ := Status(o, probers, now); write {
				t.Fatalf("%s: written again", what)
			}
		}
		if len(o.Status.PodProbeStatuses) == 0 {
			return nil
		}
		return o.Status.PodProbeStatuses[0].ProbeStates
	}
	step("nothing is known", 0, false, 0)
	first.set("Succeeded", "one", now)
	second.set("Failed", "two", now)
	states := step("two results of one container", 0, true, 0)
	if len(states) != 2 {
		t.Fatalf("results: got %+v, want 2", states)
	}
	if states[0].Message != "one" {
		t.Fatalf("message of the first probe: got %q, want \"one\"", states[0].Message)
	}
	if states[1].Message != "two" {
		t.Fatalf("message of the second probe: got %q, want \"two\"", states[1].Message)
	}
	if uid := o.Status.PodProbeStatuses[0].UID; uid != "pod" {
		t.Fatalf("pod of the results: got %q, want \"pod\"", uid)
	}
	first.set("Succeeded", "one", now.Add(time.Minute))
	step("seen again", time.Minute, false, refresh-time.Minute)
	first.set("Succeeded", "other words", now)
	step("other words", 0, true, 0)
	first.set("Succeeded", "again other words", now)
	step("too soon", 0, false, 10*time.Second)
	states = step("in time", 10*time.Second, true, 0)
	if states[0].Message != "again other words" {
		t.Fatalf("message of the first probe: got %q, want \"again other words\"", states[0].Message)
	}
	if at := states[0].LastTransitionTime; !at.Time.Equal(noon) {
		t.Fatalf("time of the first probe's state: got %s, want %s", at, noon)
	}
	second.set("Succeeded", "now", now)
	step("another state is written at once", time.Second, true, 0)
	first.Probed, second.Probed = now.Add(7*time.Minute), now.Add(7*time.Minute)
	probers[Key{"pod", "b#1"}].set("Failed", "late", now.Add(7*time.Minute))
	states = step("what is old is taken along", 7*time.Minute, true, 0)
	at := metav1.NewTime(now)
	if len(states) != 3 {
		t.Fatalf("results: got %+v, want 3", states)
	}
	if !states[0].LastProbeTime.Equal(&at) {
		t.Fatalf("time of the first probe: got %s, want %s", states[0].LastProbeTime, at)
	}
	if !states[1].LastProbeTime.Equal(&at) {
		t.Fatalf("time of the second probe: got %s, want %s", states[1].LastProbeTime, at)
	}
	step("nobody has looked since", 10*time.Minute, false, time.Minute)
	first.Probed = now
	step("it is alive", 0, true, 0)
	o.Spec.PodProbes[0].Probes = o.Spec.PodProbes[0].Probes[1:]
	if states = step("a probe is gone", 0, true, 0); len(states) != 2 {
		t.Fatalf("results after a probe is gone: got %+v, want 2", states)
	}
	o.Spec.PodProbes = nil
	if states = step("the pod is gone", 0, true, 0); states != nil {
		t.Fatalf("results after the pod is gone: got %+v, want none", states)
	}
	step("at rest", time.Hour, false, 0)
}

// PPM-094 (part): a container whose probe failed was replaced, and that of the new one failed too before
// anything was written: it is told, for the manager restarts no container for the failure of the one before.
func TestTheFailureOfTheNextContainerIsTold(t *testing.T) {
	o := object(spec())
	p := NewProber(Definitions(o)[0], noon)
	p.set("Failed", "no", noon)
	o.Status, _, _ = Status(o, map[Key]*Prober{p.Key: p}, noon)
	p.reset(noon.Add(time.Minute))
	p.set("Failed", "no", noon.Add(time.Minute))
	status, write, _ := Status(o, map[Key]*Prober{p.Key: p}, noon.Add(time.Minute))
	if !write {
		t.Error("the failure of the next container is not written")
	}
	later := noon.Add(time.Minute)
	if at := status.PodProbeStatuses[0].ProbeStates[0].LastTransitionTime; !at.Time.Equal(later) {
		t.Errorf("time of the failure of the next container: got %s, want %s", at, later)
	}
}

// A clock that is set back does not keep results from being written.
func TestAClockThatIsSetBack(t *testing.T) {
	o := object(spec())
	p := NewProber(Definitions(o)[0], noon)
	p.set("Succeeded", "", noon)
	status, _, _ := Status(o, map[Key]*Prober{p.Key: p}, noon)
	o.Status = status
	p.Probed = noon.Add(-time.Hour)
	if _, write, _ := Status(o, map[Key]*Prober{p.Key: p}, noon.Add(-time.Hour)); !write {
		t.Error("not written")
	}
}

// PPM-092 (part): where a node has many probes, messages are shorter, as they are stored.
func TestMessagesOfManyProbes(t *testing.T) {
	for _, message := range []string{"plain", "<&>\"\\\n\x01ä\u2028", strings.Repeat("<", 100), strings.Repeat("ä", 100), strings.Repeat("x", 100)} {
		got := wording.Clip(message, 64)
		text, err := json.Marshal(got)
		if err != nil {
			t.Errorf("encoding %q: %v", got, err)
		}
		if len(text)-2 > 64 {
			t.Errorf("%q is cut to %q: stored in %d bytes, want 64 at most", message, got, len(text)-2)
		}
		if !strings.HasPrefix(message, got) {
			t.Errorf("%q is cut to %q, want its beginning", message, got)
		}
		if len(text)-2 < 58 && got != message {
			t.Errorf("%q is cut to %q: stored in %d bytes, want 58 at least", message, got, len(text)-2)
		}
	}
}
