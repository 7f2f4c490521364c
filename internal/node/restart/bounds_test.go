package restart

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// CRR-129 (part): the deadline is over when more than its time has passed since the daemon first saw the
// request.
func TestTheDeadlineOfARequest(t *testing.T) {
	ten := int64(10)
	limited := request(func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.ActiveDeadlineSeconds = &ten })
	for after, over := range map[time.Duration]bool{0: false, 10 * time.Second: false, 10*time.Second + 1: true} {
		if why := finished(limited, epoch, epoch.Add(after)); (why != "") != over {
			t.Errorf("after %s: %q", after, why)
		}
	}
	if why := finished(request(), epoch, epoch.Add(time.Hour)); why != "" {
		t.Errorf("without a deadline: %q", why)
	}
}

// CRR-118 (part), CRR-119 (part): a container is back when it is ready and has run for minStartedSeconds, and
// the next pass is due exactly then.
func TestWhenAContainerIsBack(t *testing.T) {
	seconds := func(n int32) change {
		return strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) { s.MinStartedSeconds = n })
	}
	for name, tt := range map[string]struct {
		min   int32
		after time.Duration
		back  bool
		again time.Duration
	}{
		"at once":             {0, 0, true, time.Minute},
		"just long enough":    {3, 3 * time.Second, true, time.Minute},
		"a second is missing": {3, 2 * time.Second, false, time.Second},
		"all are missing":     {30, 0, false, 30 * time.Second},
		"less than the poll":  {120, 0, false, time.Minute},
		"a moment is missing": {3, 3*time.Second - time.Nanosecond, false, time.Millisecond},
		"clock set back":      {3, -time.Hour, true, time.Minute},
	} {
		current := run("a", 1)
		s := &Snapshot{Request: request(ready("a-1"), seconds(tt.min)), Now: epoch.Add(tt.after), Seen: epoch.Add(min(tt.after, 0) - time.Minute),
			Inspected: map[string]runtime.Status{current.ID: {StartedAt: epoch}}}
		plan := &Plan{After: time.Minute}
		if got := s.back(&current, plan); got != tt.back || plan.After != tt.again {
			t.Errorf("%s: %v, again in %s", name, got, plan.After)
		}
	}
}

// CRR-131 (part): whether kubelet starts a container again depends on the rules of this container, not of
// another.
func TestWhoStaysStopped(t *testing.T) {
	never := corev1.ContainerRestartPolicyNever
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways,
		Containers: []corev1.Container{{Name: "a"}, {Name: "b", RestartPolicy: &never}}}}
	for name, stays := range map[string]bool{"a": false, "b": true} {
		current := run(name, 0)
		s := &Snapshot{Request: request(), Pod: pod, Inspected: map[string]runtime.Status{current.ID: {ExitCode: 1}}}
		if why := s.stays(name, &current); (why != "") != stays {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// CRR-165: a request ends when its container is back, also if the node's clock was set back since the one
// that it stopped was made.
func TestARequestEndsAfterTheClockWasSetBack(t *testing.T) {
	r := request(ready("a-1"), states(State{Name: "a", Phase: recreating, IsKilled: true}),
		func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Containers = r.Spec.Containers[:1] })
	stopped := runtime.Container{ID: "containerd://a-0", Name: "a", PodNamespace: "ns", PodName: "p", PodUID: "u", Exited: true,
		CreatedAt: epoch.Add(time.Hour)}
	back := runtime.Container{ID: "containerd://a-1", Name: "a", PodNamespace: "ns", PodName: "p", PodUID: "u", Running: true, RestartCount: 1,
		CreatedAt: epoch}
	plan := NewPlan(Snapshot{Request: r, Containers: []runtime.Container{stopped, back}, Seen: epoch, Now: epoch.Add(time.Minute),
		Inspected: map[string]runtime.Status{stopped.ID: {Container: stopped}, back.ID: {Container: back, StartedAt: epoch}}})
	if len(plan.States) != 1 || plan.States[0].Phase != succeeded {
		t.Errorf("%+v, waits for: %s", plan.States, plan.Waiting)
	}
}
