package podprobemarker

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// policies replaces what a probe writes to its pod.
func policies(condition string, list ...appsv1alpha1.ProbeMarkerPolicy) func(*probe) {
	return func(p *probe) { p.PodConditionType, p.MarkerPolicy = condition, list }
}

// PPM-002: what probes are used for, each with what its pod gets. A condition that opens a readiness gate of
// the pod is one like any other.
func TestTypicalUsesGiveTheirPodsWhatTheyAskFor(t *testing.T) {
	labels := func(state appsv1alpha1.ProbeState, key, value string) appsv1alpha1.ProbeMarkerPolicy {
		return appsv1alpha1.ProbeMarkerPolicy{State: state, Labels: map[string]string{key: value}}
	}
	gated := func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/warm"}}
	}
	for name, test := range map[string]struct {
		probe            probe
		success, failure string
	}{
		"a game server that nobody plays on": {given.Probe("idle"),
			"a: example.com/idle=True | label idle=true", "a: example.com/idle=False | label idle=false"},
		"the primary of a database": {given.Probe("role", policies("", labels(succeeded, "role", "primary"), labels(failed, "role", "secondary"))),
			"a:  | label role=primary", "a:  | label role=secondary"},
		"which pod is cheap to delete": {given.Probe("cost", policies("", appsv1alpha1.ProbeMarkerPolicy{State: succeeded,
			Annotations: map[string]string{pub.PodDeletionCost: "-10"}})), "a:  | annotation " + pub.PodDeletionCost, "a:  | no annotation " + pub.PodDeletionCost},
		"which pod is updated first": {given.Probe("order", policies("", labels(succeeded, "update-priority", "10"), labels(failed, "update-priority", "1"))),
			"a:  | label update-priority=10", "a:  | label update-priority=1"},
		"a readiness gate": {given.Probe("warm", plain("example.com/warm")),
			"a: example.com/warm=True | ", "a: example.com/warm=False | "},
	} {
		if errs := Validate(given.Marker("m", test.probe), nil); len(errs) > 0 {
			t.Errorf(`%s: errors: got %v, want none`, name, errs)
		}
		for state, want := range map[appsv1alpha1.ProbeState]string{succeeded: test.success, failed: test.failure} {
			pod := given.Pod("a", gated, func(p *corev1.Pod) { p.Annotations = map[string]string{pub.PodDeletionCost: "0"} })
			s := results(newScene([]*corev1.Pod{pod}, given.Marker("m", test.probe)), given.Result("m#"+test.probe.Name, state, ""))
			s.List.Spec.PodProbes = PlanNode(&s.Snapshot).List
			if got := s.patches(); got != want {
				t.Errorf("%s, %s: %q, want %q", name, state, got, want)
			}
		}
	}
}

// PPM-011: commands, requests and connections are probes. What the schema has besides is kept, for clients
// that send it, and does nothing: a probe by gRPC is refused, and a grace period ends no container.
func TestHandlersThatAreSupported(t *testing.T) {
	for name, test := range map[string]struct {
		probe string
		want  bool
	}{
		"exec":      {`{"exec":{"command":["x"]}}`, true},
		"httpGet":   {`{"httpGet":{"path":"/","port":80,"scheme":"HTTP"}}`, true},
		"tcpSocket": {`{"tcpSocket":{"port":80}}`, true},
		"grpc":      {`{"grpc":{"port":80,"service":"s"}}`, false},
		"grace":     {`{"exec":{"command":["x"]},"terminationGracePeriodSeconds":30}`, true},
	} {
		p := given.Probe("idle")
		p.Probe = probeSpec{}
		if err := json.Unmarshal([]byte(test.probe), &p.Probe); err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(&p.Probe); err != nil {
			t.Errorf("%s: unexpected error: %v; %s became %s, %v", name, err, test.probe, text, err)
		} else if !equalJSON(t, string(text), test.probe) {
			t.Errorf("%s: the probe stays the same: got false, want true; %s became %s, %v", name, test.probe, text,
				err)
		}
		errs := Validate(given.Marker("m", p), nil)
		if (len(errs) == 0) != test.want {
			t.Errorf("%s: no errors: got %t, want %t\n%v\n%q", name, len(errs) == 0, test.want, errs, Fault(&p.Probe))
		}
		if got := (Fault(&p.Probe) == ""); got != test.want {
			t.Errorf("%s: the probe has no fault: got %t, want %t\n%v\n%q", name, got, test.want, errs,
				Fault(&p.Probe))
		}
		s := results(newScene([]*corev1.Pod{given.Pod("a")}, given.Marker("m", p)), given.Result("m#idle", failed, ""))
		plan := PlanNode(&s.Snapshot)
		if listed := len(plan.List) == 1; listed != test.want {
			t.Errorf("%s: the list has one marker: got %t, want %t; %+v, restarts %v", name, listed, test.want,
				plan.List, plan.Restarts)
		}
		if len(plan.Restarts) > 0 {
			t.Errorf("%s: restarted: got %v, want none; %+v, restarts %v", name, plan.Restarts, plan.List,
				plan.Restarts)
		}
	}
}

func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var left, right map[string]any
	if got := json.Unmarshal([]byte(a), &left); got != nil {
		t.Fatalf("reading the first document: unexpected error: %v\n%q\n%q", got, a, b)
	} else if got := json.Unmarshal([]byte(b), &right); got != nil {
		t.Fatalf("reading the second document: unexpected error: %v\n%q\n%q", got, a, b)
	}
	first, _ := json.Marshal(left)
	second, _ := json.Marshal(right)
	return string(first) == string(second)
}

// PPM-014: a probe succeeds, fails or is not known, and only the first two may have a policy.
func TestStatesThatMayHaveAPolicy(t *testing.T) {
	for state, want := range map[appsv1alpha1.ProbeState]bool{"Succeeded": true, "Failed": true, "Unknown": false, "": false, "succeeded": false} {
		p := given.Probe("idle", func(p *probe) { p.MarkerPolicy = p.MarkerPolicy[:1]; p.MarkerPolicy[0].State = state })
		if errs := Validate(given.Marker("m", p), nil); (len(errs) == 0) != want {
			t.Errorf("%q: no errors: got %t, want %t\n%v", state, len(errs) == 0, want, errs)
		}
	}
	for want, got := range map[appsv1alpha1.ProbeState]appsv1alpha1.ProbeState{"Succeeded": succeeded,
		"Failed": failed, "Unknown": unknown} {
		if got != want {
			t.Errorf("state: got %s, want %s", got, want)
		}
	}
}
