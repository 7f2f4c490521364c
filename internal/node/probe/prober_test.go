package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// spec is a probe by command; options change it.
func spec(options ...func(*appsv1alpha1.ContainerProbe)) appsv1alpha1.ContainerProbe {
	p := appsv1alpha1.ContainerProbe{Name: "role#primary", ContainerName: "app"}
	p.Probe.Exec = &corev1.ExecAction{Command: []string{"/probe"}}
	for _, option := range options {
		option(&p)
	}
	return p
}

func thresholds(success, failure int32) func(*appsv1alpha1.ContainerProbe) {
	return func(p *appsv1alpha1.ContainerProbe) {
		p.Probe.SuccessThreshold, p.Probe.FailureThreshold = success, failure
	}
}

// object is the NodePodProbe of a node with one pod.
func object(probes ...appsv1alpha1.ContainerProbe) *appsv1alpha1.NodePodProbe {
	o := &appsv1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Generation: 1}}
	o.Spec.PodProbes = []appsv1alpha1.PodProbe{{Namespace: "db", Name: "pg-0", UID: "pod", IP: "10.0.0.1", Probes: probes}}
	return o
}

func definition(options ...func(*appsv1alpha1.ContainerProbe)) Definition {
	return Definitions(object(spec(options...)))[0]
}

func running(id string, started time.Time) Met { return Met{ID: id, Running: true, Started: started} }

// PPM-012: what is absent, or 0, is 1, whatever kubelet's defaults are.
func TestDefaultsOfNumbers(t *testing.T) {
	d := definition()
	if d.InitialDelay != time.Second {
		t.Errorf("initial delay that is absent: got %s, want 1s", d.InitialDelay)
	}
	if d.Timeout != time.Second {
		t.Errorf("timeout that is absent: got %s, want 1s", d.Timeout)
	}
	if d.Period != time.Second {
		t.Errorf("period that is absent: got %s, want 1s", d.Period)
	}
	if d.SuccessThreshold != 1 {
		t.Errorf("success threshold that is absent: got %d, want 1", d.SuccessThreshold)
	}
	if d.FailureThreshold != 1 {
		t.Errorf("failure threshold that is absent: got %d, want 1", d.FailureThreshold)
	}
	d = definition(func(p *appsv1alpha1.ContainerProbe) {
		p.Probe.InitialDelaySeconds, p.Probe.TimeoutSeconds, p.Probe.PeriodSeconds = 7, 1<<30, 9
	})
	if d.InitialDelay != 7*time.Second {
		t.Errorf("initial delay of 7: got %s, want 7s", d.InitialDelay)
	}
	if d.Timeout != mostTimeout {
		t.Errorf("timeout that is too long: got %s, want %s", d.Timeout, mostTimeout)
	}
	if d.Period != 9*time.Second {
		t.Errorf("period of 9: got %s, want 9s", d.Period)
	}
}

// PPM-028 (part): what was stored before admission refused it, or written by hand, is not carried out, and
// its result says why.
func TestProbesThatAreNotCarriedOut(t *testing.T) {
	for name, change := range map[string]func(*appsv1alpha1.ContainerProbe){
		"host field in probes is not allowed": func(p *appsv1alpha1.ContainerProbe) {
			p.Probe.ContainerProbeHandler = appsv1alpha1.ContainerProbeHandler{HTTPGet: &appsv1alpha1.HTTPGetAction{Host: "169.254.169.254",
				Port: intstr.FromInt32(80)}}
		},
		"host field in probes": func(p *appsv1alpha1.ContainerProbe) {
			p.Probe.ContainerProbeHandler = appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "10.96.0.1",
				Port: intstr.FromInt32(443)}}
		},
		"port is not a number": func(p *appsv1alpha1.ContainerProbe) {
			p.Probe.ContainerProbeHandler = appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}
		},
		"port is not a number from 1 to 65535": func(p *appsv1alpha1.ContainerProbe) {
			p.Probe.ContainerProbeHandler = appsv1alpha1.ContainerProbeHandler{HTTPGet: &appsv1alpha1.HTTPGetAction{Port: intstr.FromInt32(65536)}}
		},
		"no command":          func(p *appsv1alpha1.ContainerProbe) { p.Probe.Exec.Command = nil },
		"exactly one of exec": func(p *appsv1alpha1.ContainerProbe) { p.Probe.Exec = nil },
	} {
		p := NewProber(definition(change), noon)
		due := p.Meet(running("a", noon.Add(-time.Hour)), noon)
		p.Take(Attempt{Success, "ok"}, "a", noon)
		if due {
			t.Errorf("%s: the probe is due", name)
		}
		if p.State != appsv1alpha1.ProbeUnknown {
			t.Errorf("%s: state of the probe: got %s, want %s", name, p.State, appsv1alpha1.ProbeUnknown)
		}
		if !strings.Contains(p.Message, name) {
			t.Errorf("%s: message of the probe lacks this: %q", name, p.Message)
		}
	}
}

// PPM-084, PPM-085 (part), PPM-086, PPM-087 (part), PPM-091, PPM-094: the life of a probe, attempt by
// attempt. Only what was seen so often in a row is a result; a container that is replaced has none, one that
// does not run has failed, and one that starts is left alone.
func TestTheResultOfAProbe(t *testing.T) {
	p := NewProber(definition(thresholds(2, 3)), noon)
	at := noon
	step := func(what string, act func(), state appsv1alpha1.ProbeState, message string) {
		t.Helper()
		at = at.Add(10 * time.Second)
		changed, former := p.Changed, p.State
		act()
		if p.State != state {
			t.Fatalf("%s: state %q, want %q", what, p.State, state)
		}
		if p.Message != message {
			t.Fatalf("%s: message %q, want %q", what, p.Message, message)
		}
		if moved := !p.Changed.Equal(changed); moved != (former != state) {
			t.Fatalf("%s: changed at %s, before at %s, want it to move: %t",
				what, p.Changed, changed, former != state)
		}
	}
	take := func(o Outcome, message string) func() {
		return func() { p.Take(Attempt{o, message}, p.container, at) }
	}
	meet := func(c Met, due bool) func() {
		return func() {
			t.Helper()
			if p.Meet(c, at) != due {
				t.Fatalf("the probe is due: got %t, want %t", !due, due)
			}
		}
	}
	step("no container", meet(Met{}, false), "", "")
	step("initial delay", meet(running("a", noon.Add(20*time.Second)), false), "", "")
	step("it starts", meet(Met{ID: "a", Running: true, Starting: true}, false), "", "")
	step("due", meet(running("a", noon), true), "", "")
	step("one success of two", take(Success, "yes"), "", "")
	step("an error is told while nothing else is known", take(None, "no such file"), "Unknown", "the probe cannot be carried out: no such file")
	step("two successes", take(Success, "yes!"), "Succeeded", "yes!")
	step("another message", take(Success, "still"), "Succeeded", "still")
	step("an error changes no result", take(None, "no runtime"), "Succeeded", "still")
	step("a failure", take(Failure, "no"), "Succeeded", "still")
	step("two", take(Failure, "no"), "Succeeded", "still")
	step("a success between", take(Success, "so"), "Succeeded", "still")
	step("two of three", func() { take(Failure, "no")(); take(Failure, "no")() }, "Succeeded", "still")
	step("three failures", take(Failure, "no"), "Failed", "no")
	step("an attempt at another container", func() { p.Take(Attempt{Success, "x"}, "b", at); p.Take(Attempt{Success, "x"}, "b", at) }, "Failed", "no")
	step("replaced", meet(running("b", at.Add(10*time.Second)), false), "Unknown", "")
	step("one success", take(Success, "b"), "Unknown", "")
	step("not running", meet(Met{ID: "b"}, false), "Failed", "container app is not running")
	step("it runs: one success does not count with the one before", func() {
		meet(running("b", noon), true)()
		take(Success, "b")()
	}, "Unknown", "")
	step("two", take(Success, "b"), "Succeeded", "b")
}

// PPM-081 (part): other numbers change no result, another question has none, and another container is met
// anew.
func TestADefinitionThatChanges(t *testing.T) {
	succeeded := func() *Prober {
		p := NewProber(definition(), noon)
		p.Meet(running("a", noon.Add(-time.Minute)), noon)
		p.Take(Attempt{Success, "yes"}, "a", noon)
		return p
	}
	for name, test := range map[string]struct {
		change func(*appsv1alpha1.ContainerProbe)
		want   appsv1alpha1.ProbeState
		knows  bool
	}{
		"numbers":   {func(p *appsv1alpha1.ContainerProbe) { p.Probe.PeriodSeconds, p.Probe.FailureThreshold = 60, 9 }, "Succeeded", true},
		"command":   {func(p *appsv1alpha1.ContainerProbe) { p.Probe.Exec.Command = []string{"/other"} }, "Unknown", true},
		"container": {func(p *appsv1alpha1.ContainerProbe) { p.ContainerName = "sidecar" }, "Unknown", false},
	} {
		p := succeeded()
		p.Define(definition(test.change), noon.Add(time.Second))
		if p.State != test.want {
			t.Errorf("%s: state %s, want %s", name, p.State, test.want)
		}
		if (p.container == "a") != test.knows {
			t.Errorf("%s: knows container %q, want a: %t", name, p.container, test.knows)
		}
	}
	p := succeeded()
	d := definition()
	d.IP = "10.0.0.9"
	if p.Define(d, noon); p.State != "Succeeded" {
		t.Errorf("state after another address: got %s, want Succeeded", p.State)
	}
	if p.IP != "10.0.0.9" {
		t.Errorf("address of the pod: got %s, want 10.0.0.9", p.IP)
	}
}

// PPM-082: a daemon that starts has each probe wait for a random part of its period, and tick from then on;
// it goes on with what it has reported, unless the container has started since.
func TestADaemonThatStartsAgainGoesOn(t *testing.T) {
	const probes = 100
	state := appsv1alpha1.ContainerProbeState{State: "Succeeded", Message: "yes", LastProbeTime: metav1.NewTime(noon), LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}
	npp := object()
	npp.Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{{Namespace: "db", Name: "pg-0", UID: "pod"}}
	for i := range probes {
		p := spec(named(fmt.Sprint("m#", i)), func(p *appsv1alpha1.ContainerProbe) { p.Probe.PeriodSeconds = 60 })
		npp.Spec.PodProbes[0].Probes = append(npp.Spec.PodProbes[0].Probes, p)
		state.Name = p.Name
		npp.Status.PodProbeStatuses[0].ProbeStates = append(npp.Status.PodProbeStatuses[0].ProbeStates, state)
	}
	r := newReconciler("n", nil, nil, clocktesting.NewFakeClock(noon))
	r.containers = newContainers(nil, nil, true, func() time.Time { return noon })
	r.define(npp)
	begins := map[time.Duration]bool{}
	for _, e := range r.schedule.entries {
		at := e.at.Sub(noon)
		if begins[at] = true; at < 0 || at >= time.Minute {
			t.Errorf("a probe begins %s after the start, want within a minute", at)
		}
	}
	if len(begins) < probes*9/10 {
		t.Errorf("times at which %d probes begin: got %d, want %d at least", probes, len(begins), probes*9/10)
	}
	ticks := map[Key][]time.Time{}
	for now := noon; now.Before(noon.Add(4 * time.Minute)); now = now.Add(10 * time.Millisecond) {
		for turn, _ := r.schedule.Next(now); turn != nil; turn, _ = r.schedule.Next(now) {
			ticks[turn.Key] = append(ticks[turn.Key], now)
			r.schedule.Done(turn, now.Add(time.Second))
		}
	}
	for key, at := range ticks {
		for i := 1; i < len(at); i++ {
			if every := at[i].Sub(at[i-1]); every < 59*time.Second || every > 61*time.Second {
				t.Errorf("%s ticks after %s, want 59s to 61s", key.Name, every)
			}
		}
	}
	if len(ticks) != probes {
		t.Errorf("probes that tick: got %d, want %d", len(ticks), probes)
	}
	for started, want := range map[time.Time]appsv1alpha1.ProbeState{noon.Add(-time.Hour): "Succeeded", noon.Add(5 * time.Second): "Unknown"} {
		p := *r.probers[Key{"pod", "m#1"}]
		if p.State != "Succeeded" {
			t.Fatalf("state that was resumed: got %s, want Succeeded", p.State)
		}
		if p.Message != "yes" {
			t.Fatalf("message that was resumed: got %q, want \"yes\"", p.Message)
		}
		if p.Meet(running("a", started), noon.Add(time.Minute)); p.State != want {
			t.Errorf("state of a container that started at %s: got %s, want %s", started, p.State, want)
		}
		if p.Meet(running("b", started), noon.Add(time.Minute)); p.State != "Unknown" {
			t.Errorf("state of the next container: got %s, want Unknown", p.State)
		}
	}
}

// PPM-092: messages are cut at a character, and are text.
func TestMessagesAreBounded(t *testing.T) {
	p := NewProber(definition(), noon)
	for message, want := range map[string]string{strings.Repeat("ä", 2000) + "\xff": strings.Repeat("ä", 512), "a\xffb": "a\uFFFDb",
		"x" + strings.Repeat("ä", 512): "x" + strings.Repeat("ä", 511)} {
		if p.set("Failed", message, noon); p.Message != want {
			t.Errorf("message that is cut: has %d bytes, want %d", len(p.Message), len(want))
		}
		if !utf8.ValidString(p.Message) {
			t.Errorf("message that is cut: is no text: %.20q", p.Message)
		}
	}
}

// A container is met after it was created and before it runs: once it runs, that is no failure of it, and its
// failures count from when they were seen.
func TestAContainerThatIsMetBeforeItRunsHasNotFailed(t *testing.T) {
	p := NewProber(definition(), noon)
	p.Meet(Met{ID: "a", Started: noon}, noon)
	later := noon.Add(time.Second)
	if p.Meet(running("a", noon), later); p.State == "Failed" {
		t.Error("it runs, and has failed: ", p.Message)
	}
	if p.Take(Attempt{Failure, "no"}, "a", later.Add(time.Minute)); p.State != "Failed" {
		t.Errorf("state after a failure: got %+v, want Failed", p.Result)
	}
	if want := later.Add(time.Minute); !p.Changed.Equal(want) {
		t.Errorf("time of the failure: got %s, want %s", p.Changed, want)
	}
}

// A container has ended, and kubelet is about to start it again: its liveness probe has not failed, for
// another restart would follow.
func TestAContainerThatEndedHasNotFailedItsLivenessProbe(t *testing.T) {
	p := NewProber(definition(named("pg-0-app")), noon)
	p.Meet(running("a", noon), noon.Add(time.Minute))
	p.Take(Attempt{Success, "yes"}, "a", noon.Add(time.Minute))
	if p.Meet(Met{ID: "a"}, noon.Add(2*time.Minute)); p.State != "Unknown" {
		t.Errorf("state of the liveness probe of a container that ended: got %s, want Unknown", p.State)
	}
	if !strings.Contains(p.Message, "not running") {
		t.Errorf("message about a container that ended: got %q, want that it is not running", p.Message)
	}
}

// PPM-087 (part): kubelet tells late that the startup probe of a container has not succeeded yet. What was
// seen before that does not count.
func TestWhatWasSeenOfAContainerThatStartsDoesNotCount(t *testing.T) {
	p := NewProber(definition(), noon)
	p.Meet(running("a", noon), noon.Add(time.Second))
	p.Take(Attempt{Failure, "no"}, "a", noon.Add(time.Second))
	if p.Meet(Met{ID: "a", Running: true, Starting: true}, noon.Add(2*time.Second)); p.State != "Unknown" {
		t.Errorf("state of the probe of a container that starts: got %+v, want Unknown", p.Result)
	}
}

// A container ended, kubelet started another one at once, and the daemon was replaced just then: the new one
// has not failed.
func TestADaemonThatStartsAgainTakesNoContainerForTheOneThatEnded(t *testing.T) {
	p := NewProber(definition(), noon.Add(time.Minute))
	p.Resume(appsv1alpha1.ContainerProbeState{State: "Failed", Message: "container app is not running", LastProbeTime: metav1.NewTime(noon), LastTransitionTime: metav1.NewTime(noon)}, noon)
	if p.Meet(running("b", noon.Add(500*time.Millisecond)), noon.Add(time.Minute)); p.State != "Unknown" {
		t.Errorf("state of the probe of a container that replaced one that ended: got %+v, want Unknown",
			p.Result)
	}
}
