package containerrecreate

import (
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
)

// CRR-060 (part), CRR-061 (part): of several times that are due the first counts, and the plan says it.
func TestTheFirstDueTimeCounts(t *testing.T) {
	seconds := func(n int64) func(*appsv1beta1.ContainerRecreateRequest) {
		return func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.ActiveDeadlineSeconds = &n }
	}
	for name, tt := range map[string]struct {
		request *appsv1beta1.ContainerRecreateRequest
		after   time.Duration
		text    string
	}{
		"the deadline before the answer": {containerrecreatetest.Request(containerrecreatetest.Phase(""), seconds(30)), 20 * time.Second,
			"waiting for the daemon of node node-a to answer; again in 20s"},
		"the answer before the deadline": {containerrecreatetest.Request(containerrecreatetest.Phase(""), seconds(300)), 50 * time.Second,
			"waiting for the daemon of node node-a to answer; again in 50s"},
		"both at once": {containerrecreatetest.Request(containerrecreatetest.Phase(""), seconds(60)), 50 * time.Second,
			"waiting for the daemon of node node-a to answer; again in 50s"},
		"nothing is due": {containerrecreatetest.Request(containerrecreatetest.Phase("Pending")), 0, "waiting for its turn, phase Pending"},
	} {
		plan := NewPlan(Snapshot{Request: tt.request, Pod: containerrecreatetest.Pod(), Now: containerrecreatetest.Noon.Add(10 * time.Second)})
		if plan.After != tt.after || plan.String() != tt.text {
			t.Errorf("%s: %q, after %s", name, plan, plan.After)
		}
	}
}

// CRR-057 (part): a request has succeeded if every container that it asks for has, whatever the names of
// others are.
func TestSuccessIsThatOfTheContainersAskedFor(t *testing.T) {
	state := func(name string, phase appsv1beta1.ContainerRecreateRequestPhase) appsv1beta1.ContainerRecreateRequestContainerRecreateState {
		return appsv1beta1.ContainerRecreateRequestContainerRecreateState{Name: name, Phase: phase}
	}
	const good, bad = appsv1beta1.ContainerRecreateRequestSucceeded, appsv1beta1.ContainerRecreateRequestFailed
	for name, tt := range map[string]struct {
		states []appsv1beta1.ContainerRecreateRequestContainerRecreateState
		want   Result
	}{
		"both": {[]appsv1beta1.ContainerRecreateRequestContainerRecreateState{state("app", good), state("proxy", good)},
			Succeeded},
		"one of them": {[]appsv1beta1.ContainerRecreateRequestContainerRecreateState{state("app", good), state("proxy", bad)},
			Failed},
		"one, and another": {[]appsv1beta1.ContainerRecreateRequestContainerRecreateState{state("app", good), state("x", good)}, Failed},
		"both, not another": {[]appsv1beta1.ContainerRecreateRequestContainerRecreateState{state("app", good), state("proxy", good),
			state("x", bad)}, Succeeded},
		"nothing is known": {nil, Failed},
	} {
		r := containerrecreatetest.Request(containerrecreatetest.Done)
		r.Status.ContainerRecreateStates = tt.states
		if got := ResultOf(r); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for message, want := range map[string]Result{restart.MessageDeadline: DeadlineExceeded, restart.MessageNoAnswer: NoAnswer,
		restart.MessagePodGone: PodGone, "other": Failed} {
		r := containerrecreatetest.Request(containerrecreatetest.Done, containerrecreatetest.Succeeded)
		if r.Status.Message = message; ResultOf(r) != want {
			t.Errorf("%q: %s", message, ResultOf(r))
		}
	}
}
