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
	if d.InitialDelay != time.Second || d.Timeout != time.Second || d.Period != time.Second || d.SuccessThreshold != 1 || d.FailureThreshold != 1 {
		t.Errorf("%+v", d)
	}
	d = definition(func(p *appsv1alpha1.ContainerProbe) {
		p.Probe.InitialDelaySeconds, p.Probe.TimeoutSeconds, p.Probe.PeriodSeconds = 7, 1<<30, 9
	})
	if d.InitialDelay != 7*time.Second || d.Timeout != mostTimeout || d.Period != 9*time.Second {
		t.Errorf("%+v", d)
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
		if due || p.State != appsv1alpha1.ProbeUnknown || !strings.Contains(p.Message, name) {
			t.Errorf("%s: due %v, %+v", name, due, p.Result)
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
		if p.State != state || p.Message != message {
			t.Fatalf("%s: %q %q", what, p.State, p.Message)
		}
		if moved := !p.Changed.Equal(changed); moved != (former != state) {
			t.Fatalf("%s: changed at %s, before %s", what, p.Changed, changed)
		}
	}
	take := func(o Outcome, message string) func() {
		return func() { p.Take(Attempt{o, message}, p.container, at) }
	}
	meet := func(c Met, due bool) func() {
		return func() {
			t.Helper()
			if p.Meet(c, at) != due {
				t.Fatalf("due: %v", !due)
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
		if p.State != test.want || (p.container == "a") != test.knows {
			t.Errorf("%s: %s of container %q", name, p.State, p.container)
		}
	}
	p := succeeded()
	d := definition()
	d.IP = "10.0.0.9"
	if p.Define(d, noon); p.State != "Succeeded" || p.IP != "10.0.0.9" {
		t.Errorf("%+v", p)
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
			t.Error(at)
		}
	}
	if len(begins) < probes*9/10 {
		t.Errorf("%d probes begin at %d times", probes, len(begins))
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
				t.Errorf("%s ticks after %s", key.Name, every)
			}
		}
	}
	if len(ticks) != probes {
		t.Errorf("%d probes tick", len(ticks))
	}
	for started, want := range map[time.Time]appsv1alpha1.ProbeState{noon.Add(-time.Hour): "Succeeded", noon.Add(5 * time.Second): "Unknown"} {
		p := *r.probers[Key{"pod", "m#1"}]
		if p.State != "Succeeded" || p.Message != "yes" {
			t.Fatal(p.Result)
		}
		if p.Meet(running("a", started), noon.Add(time.Minute)); p.State != want {
			t.Errorf("a container that started at %s: %s", started, p.State)
		}
		if p.Meet(running("b", started), noon.Add(time.Minute)); p.State != "Unknown" {
			t.Errorf("the next container: %s", p.State)
		}
	}
}

// PPM-092: messages are cut at a character, and are text.
func TestMessagesAreBounded(t *testing.T) {
	p := NewProber(definition(), noon)
	for message, want := range map[string]string{strings.Repeat("ä", 2000) + "\xff": strings.Repeat("ä", 512), "a\xffb": "a\uFFFDb",
		"x" + strings.Repeat("ä", 512): "x" + strings.Repeat("ä", 511)} {
		if p.set("Failed", message, noon); p.Message != want || !utf8.ValidString(p.Message) {
			t.Errorf("%d bytes, want %d", len(p.Message), len(want))
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
	if p.Take(Attempt{Failure, "no"}, "a", later.Add(time.Minute)); p.State != "Failed" || !p.Changed.Equal(later.Add(time.Minute)) {
		t.Errorf("%+v", p.Result)
	}
}

// A container has ended, and kubelet is about to start it again: its liveness probe has not failed, for
// another restart would follow.
func TestAContainerThatEndedHasNotFailedItsLivenessProbe(t *testing.T) {
	p := NewProber(definition(named("pg-0-app")), noon)
	p.Meet(running("a", noon), noon.Add(time.Minute))
	p.Take(Attempt{Success, "yes"}, "a", noon.Add(time.Minute))
	if p.Meet(Met{ID: "a"}, noon.Add(2*time.Minute)); p.State != "Unknown" || !strings.Contains(p.Message, "not running") {
		t.Errorf("%+v", p.Result)
	}
}

// PPM-087 (part): kubelet tells late that the startup probe of a container has not succeeded yet. What was
// seen before that does not count.
func TestWhatWasSeenOfAContainerThatStartsDoesNotCount(t *testing.T) {
	p := NewProber(definition(), noon)
	p.Meet(running("a", noon), noon.Add(time.Second))
	p.Take(Attempt{Failure, "no"}, "a", noon.Add(time.Second))
	if p.Meet(Met{ID: "a", Running: true, Starting: true}, noon.Add(2*time.Second)); p.State != "Unknown" {
		t.Errorf("%+v", p.Result)
	}
}

// A container ended, kubelet started another one at once, and the daemon was replaced just then: the new one
// has not failed.
func TestADaemonThatStartsAgainTakesNoContainerForTheOneThatEnded(t *testing.T) {
	p := NewProber(definition(), noon.Add(time.Minute))
	p.Resume(appsv1alpha1.ContainerProbeState{State: "Failed", Message: "container app is not running", LastProbeTime: metav1.NewTime(noon), LastTransitionTime: metav1.NewTime(noon)})
	if p.Meet(running("b", noon.Add(500*time.Millisecond)), noon.Add(time.Minute)); p.State != "Unknown" {
		t.Errorf("%+v", p.Result)
	}
}
