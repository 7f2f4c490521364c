package restart

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
)

// broken is a runtime whose stops fail.
type broken struct {
	*world
	err error
}

func (b broken) Stop(context.Context, string, time.Duration) error { return b.err }

func quiet(t *testing.T, changes ...change) (*world, func() *appsv1beta1.ContainerRecreateRequest) {
	t.Helper()
	w := newWorld(t, 1)
	w.calm = true
	r := request(append([]change{states(), func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Phase = "" }}, changes...)...)
	if err := w.api.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return w, func() *appsv1beta1.ContainerRecreateRequest {
		t.Helper()
		now := &appsv1beta1.ContainerRecreateRequest{}
		if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(r), now); err != nil {
			t.Fatal(err)
		}
		return now
	}
}

func (w *world) rounds(n int) (last error) {
	for range n {
		w.sync()
		key := types.NamespacedName{Namespace: "ns", Name: "p"}
		_, last = w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key})
		w.settle()
		if _, err := w.r.stopping(key); err != nil { // as the next round does
			last = err
		}
	}
	return last
}

// CRR-100, ND-038: a runtime that this node does not have ends the request; one that does not answer now is
// waited for.
func TestRuntimeIsMissing(t *testing.T) {
	w, now := quiet(t)
	w.r.runtimeOf = func(string) (Runtime, error) { return nil, runtime.ErrUnavailable }
	if err := w.rounds(2); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("rounds while no runtime answers: got %v, want %v", err, runtime.ErrUnavailable)
	}
	if at := now().Status.CompletionTime; at != nil {
		t.Errorf("the request is completed while no runtime answers, at %s", at)
	}
	w.r.runtimeOf = func(string) (Runtime, error) { return nil, errors.New(`no runtime named "docker" on this node`) }
	if err := w.rounds(2); err != nil {
		t.Errorf("rounds without the runtime of the request: %v", err)
	}
	s := now().Status
	if s.Phase != completed {
		t.Errorf("phase of the request: got %q, want %s", s.Phase, completed)
	}
	if want := `failed to find runtime service: no runtime named "docker" on this node`; s.Message != want {
		t.Errorf("message of the request: got %q, want %q", s.Message, want)
	}
	if state := s.ContainerRecreateStates[1]; state.Phase != failed {
		t.Errorf("the second container: got %+v, want it %s", state, failed)
	}
}

// CRR-123, CRR-125, CRR-127, CRR-136: a stop that fails is the container's failure and, by the policy, the
// request's end; a runtime that does not answer for a while is not a failure.
func TestAStopThatFailsFailsItsContainer(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		change change
		want   []State
	}{
		"Fail": {err: errors.New("cannot kill"), change: func(*appsv1beta1.ContainerRecreateRequest) {}, want: []State{
			{Name: "a", Phase: failed, Message: "kill container error: cannot kill"},
			{Name: "b", Phase: failed, Message: "given up because container a failed"}}},
		"Ignore": {err: errors.New("cannot kill"), change: ignore, want: []State{
			{Name: "a", Phase: failed, Message: "kill container error: cannot kill"},
			{Name: "b", Phase: failed, Message: "kill container error: cannot kill"}}},
		"runtime away": {err: runtime.ErrUnavailable, change: ignore,
			want: []State{{Name: "a", Phase: pending}, {Name: "b", Phase: pending}}},
		"container gone": {err: runtime.ErrNotFound, change: ignore,
			want: []State{{Name: "a", Phase: pending}, {Name: "b", Phase: pending}}},
	} {
		t.Run(name, func(t *testing.T) {
			w, now := quiet(t, test.change)
			w.r.runtimeOf = func(string) (Runtime, error) { return broken{w, test.err}, nil }
			_ = w.rounds(8)
			s := now().Status
			if diff := cmp.Diff(test.want, s.ContainerRecreateStates); diff != "" {
				t.Errorf("containers of the request (-want +got):\n%s", diff)
			}
			if over := strings.HasPrefix(test.want[0].Message, "kill"); over != (s.CompletionTime != nil) {
				t.Errorf("the request is completed: got %t, want %t: %+v", !over, over, s)
			}
			if s.Message != "" {
				t.Errorf("message of the request: got %q, want none", s.Message)
			}
		})
	}
}

// CRR-086, CRR-161: the grace period has its full length if the node's clock is behind or ahead of the
// manager's, and nothing is remembered of a completed request.
func TestGraceOfAnotherClock(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"the clocks agree": 0, "the node is ahead": time.Hour,
		"the node is behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			w, now := quiet(t, unready(epoch.Add(-ahead)), func(r *appsv1beta1.ContainerRecreateRequest) {
				seconds := int64(30)
				r.Spec.Strategy.UnreadyGracePeriodSeconds = &seconds
			})
			for second := 0; second <= 31; second++ {
				if err := w.rounds(3); err != nil {
					t.Fatal(err)
				}
				if stopped := len(w.stops) > 0; stopped != (second >= 30) {
					t.Fatalf("after %d s: the container is stopped: got %t, want %t",
						second, stopped, !stopped)
				}
				w.clock.Step(time.Second)
			}
			if err := w.api.Delete(t.Context(), now()); err != nil {
				t.Fatal(err)
			}
			_ = w.rounds(1)
			w.r.seen.Range(func(pod, _ any) bool {
				t.Errorf("the grace period of %v is remembered", pod)
				return false
			})
		})
	}
}

// CRR-129, CRR-161: the deadline leaves a request its full time if the node's clock is ahead of the manager's
// or behind it, and still ends it; nothing is remembered of a completed request.
func TestDeadlineOfAnotherClock(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"the clocks agree": 0, "the node is ahead": time.Hour,
		"the node is behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			minute := int64(60)
			for after, want := range map[time.Duration]bool{0: true, 59 * time.Second: true, 61 * time.Second: false} {
				w, now := quiet(t, func(r *appsv1beta1.ContainerRecreateRequest) {
					r.Spec.ActiveDeadlineSeconds, r.CreationTimestamp = &minute, metav1.NewTime(epoch.Add(-ahead))
				})
				w.r.runtimeOf = func(string) (Runtime, error) { return nil, runtime.ErrUnavailable }
				_ = w.rounds(1)
				w.clock.Step(after)
				w.r.runtimeOf = func(string) (Runtime, error) { return w, nil }
				if err := w.rounds(3); err != nil {
					t.Errorf("rounds %s after the request was seen: %v", after, err)
				}
				if stopped := len(w.stops) > 0; stopped != want {
					t.Errorf("%s after the request was seen, its container is stopped: got %t, want %t",
						after, stopped, want)
				}
				if err := w.api.Delete(t.Context(), now()); err != nil {
					t.Fatal(err)
				}
				_ = w.rounds(1)
				w.r.seen.Range(func(pod, _ any) bool {
					t.Errorf("when the request of %v was seen is remembered", pod)
					return false
				})
			}
		})
	}
}

// late is a runtime whose stops succeed but return no answer.
type late struct{ *world }

func (l late) Stop(ctx context.Context, id string, grace time.Duration) error {
	if err := l.world.Stop(ctx, id, grace); err != nil {
		return err
	}
	return errors.New("rpc error: code = DeadlineExceeded desc = context deadline exceeded")
}

// CRR-123, CRR-128: a stop whose answer did not come in time has worked if the container has ended, or has
// been replaced: that is no failure.
func TestStopWithoutAnswer(t *testing.T) {
	for name, test := range map[string]func(*world){
		"ended":    func(*world) {},
		"replaced": func(w *world) { w.kubelet() },
		"removed": func(w *world) {
			w.kubelet()
			w.containers = slices.DeleteFunc(w.containers, func(c runtime.Container) bool { return c.Exited })
		},
	} {
		t.Run(name, func(t *testing.T) {
			deadline := int64(600)
			w, now := quiet(t, force, func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.ActiveDeadlineSeconds = &deadline })
			w.r.runtimeOf = func(string) (Runtime, error) { return after{late{w}, func() { test(w) }}, nil }
			for range 20 {
				_ = w.rounds(1)
				w.kubelet()
				w.manager()
				w.clock.Step(time.Second)
			}
			s := now().Status
			if s.CompletionTime == nil {
				t.Errorf("the request is not completed: %+v", s)
			}
			if state := s.ContainerRecreateStates[0]; state.Phase != succeeded {
				t.Errorf("the first container: got %+v, want it %s", state, succeeded)
			}
			if state := s.ContainerRecreateStates[0]; !state.IsKilled {
				t.Errorf("the first container: got %+v, want it killed", state)
			}
			if state := s.ContainerRecreateStates[1]; state.Phase != succeeded {
				t.Errorf("the second container: got %+v, want it %s", state, succeeded)
			}
		})
	}
}

// mute is a runtime that never answers to stops and, as long as it is mute, to no other call.
type mute struct {
	*world
	status error
}

func (m mute) Stop(context.Context, string, time.Duration) error {
	return errors.New("rpc error: code = DeadlineExceeded desc = context deadline exceeded")
}

func (m mute) Status(ctx context.Context, id string) (runtime.Status, error) {
	if m.status != nil {
		return runtime.Status{}, m.status
	}
	return m.world.Status(ctx, id)
}

// CRR-123: a stop does not count as failed while the runtime does not report its result; it is retried.
func TestStopOfUnknownOutcome(t *testing.T) {
	w, now := quiet(t)
	away := errors.New("rpc error: code = Unknown desc = the runtime starts")
	w.r.runtimeOf = func(string) (Runtime, error) { return mute{w, away}, nil }
	if err := w.rounds(5); !errors.Is(err, away) {
		t.Errorf("rounds while the runtime starts: got %v, want %v", err, away)
	}
	if state := now().Status.ContainerRecreateStates[0]; state.Phase != pending {
		t.Errorf("the container while the runtime starts: got %+v, want it %s", state, pending)
	}
	if at := now().Status.CompletionTime; at != nil {
		t.Errorf("the request is completed while the runtime starts, at %s", at)
	}
	w.r.runtimeOf = func(string) (Runtime, error) { return mute{w, nil}, nil }
	if err := w.rounds(5); err != nil {
		t.Errorf("rounds while the container runs on: %v", err)
	}
	if state := now().Status.ContainerRecreateStates[0]; state.Phase != failed {
		t.Errorf("the container that runs on: got %+v, want it %s", state, failed)
	}
	w, now = quiet(t)
	w.r.runtimeOf = func(string) (Runtime, error) { return mute{w, away}, nil }
	_ = w.rounds(5)
	w.r.runtimeOf = func(string) (Runtime, error) { return w, nil }
	if err := w.rounds(5); err != nil {
		t.Errorf("rounds with the next try: %v", err)
	}
	if len(w.stops) != 2 {
		t.Errorf("stops with the next try: got %v, want 2: %+v", w.stops, now().Status)
	}
}

// after calls a function between the stop and its answer.
type after struct {
	Runtime
	then func()
}

func (a after) Stop(ctx context.Context, id string, grace time.Duration) error {
	err := a.Runtime.Stop(ctx, id, grace)
	a.then()
	return err
}

// CRR-005, CRR-068: only the daemon's own fields of the status are written.
func TestManagersFieldsAreLeftAlone(t *testing.T) {
	w, now := quiet(t, ready("a-1"), unready(epoch))
	_ = w.rounds(4)
	s := now().Status
	if len(s.ContainerStatusSnapshot) != 1 {
		t.Errorf("the manager's snapshot of containers: got %v, want 1", s.ContainerStatusSnapshot)
	}
	if len(s.Conditions) != 1 {
		t.Errorf("the manager's conditions: got %v, want 1", s.Conditions)
	}
	if s.Phase != recreating {
		t.Errorf("phase of the request: got %q, want %s", s.Phase, recreating)
	}
}

// CRR-095, CRR-160: every event of a request queues its pod, its completion included, and the next request
// begins.
func TestNextRequestBegins(t *testing.T) {
	w, now := quiet(t)
	second := request(states(), func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Name, r.UID, r.Status.Phase = "second", "2", ""
	})
	if err := w.api.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	_ = w.rounds(2)
	if _, err := w.answer("second"); err != nil {
		t.Fatal(err)
	}
	list := w.all()
	if phase := list[0].Status.Phase; phase != recreating { // CRR-093, CRR-094
		t.Fatalf("phase of the first request: got %q, want %s", phase, recreating)
	}
	if phase := list[1].Status.Phase; phase != pending {
		t.Fatalf("phase of the second request: got %q, want %s", phase, pending)
	}
	first := now()
	want := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}}}
	if diff := cmp.Diff(want, toPod(t.Context(), first)); diff != "" {
		t.Errorf("pods that an event of the request queues (-want +got):\n%s", diff)
	}
	if err := w.api.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	_ = w.rounds(2)
	if list := w.all(); len(list) != 1 {
		t.Errorf("requests that are left: got %+v, want 1", list)
	} else if phase := list[0].Status.Phase; phase != recreating {
		t.Errorf("phase of the next request: got %q, want %s", phase, recreating)
	}
}

// CRR-102, CRR-104, CRR-039, CRR-040, CRR-106: grace period, hook, ports and address, from the request or
// else from the pod.
func TestOrderOfAStop(t *testing.T) {
	w := newWorld(t, 1)
	zero := int64(0)
	sleep := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}
	tcp := &appsv1beta1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}
	pod := &corev1.Pod{Status: corev1.PodStatus{PodIP: "10.0.0.1"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "a", Ports: []corev1.ContainerPort{{Name: "web"}},
			Lifecycle: &corev1.Lifecycle{PreStop: sleep}}},
		InitContainers: []corev1.Container{{Name: "b"}}}}
	r := request(func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Containers[1].PreStop = tcp })
	a, b := run("a", 0), run("b", 0)
	first, second, unknown := w.r.order(r, pod, &a), w.r.order(r, pod, &b), w.r.order(r, nil, &a)
	if first.Hook != sleep {
		t.Errorf("hook of a: got %v, want that of the pod", first.Hook)
	}
	if first.Ports[0].Name != "web" {
		t.Errorf("ports of a: got %v, want web", first.Ports)
	}
	if first.PodIP != "10.0.0.1" {
		t.Errorf("address of the pod: got %s, want 10.0.0.1", first.PodIP)
	}
	if first.Grace != 30*time.Second {
		t.Errorf("grace period of a: got %s, want 30s", first.Grace)
	}
	if first.Init {
		t.Error("a is taken for an init container")
	}
	if first.By != "ContainerRecreateRequest r" {
		t.Errorf("who stops a: got %q, want ContainerRecreateRequest r", first.By)
	}
	if second.Hook.TCPSocket != tcp.TCPSocket {
		t.Errorf("hook of b: got %v, want that of the request", second.Hook)
	}
	if !second.Init {
		t.Error("b is not taken for an init container")
	}
	if unknown.Hook != nil {
		t.Errorf("hook of a container whose pod is unknown: got %v, want none", unknown.Hook)
	}
	r.Spec.Strategy.TerminationGracePeriodSeconds = &zero
	if got := w.r.order(r, pod, &a).Grace; got != 0 {
		t.Errorf("grace period of 0 of the request: got %s, want 0", got)
	}
	zero = math.MaxInt64
	if got := w.r.order(r, pod, &a).Grace; got != 30*time.Second {
		t.Errorf("grace period of more than the pod has: got %s, want 30s", got)
	}
	pod.Spec.TerminationGracePeriodSeconds = &zero
	if got := w.r.order(r, pod, &a).Grace; got < 24*time.Hour {
		t.Errorf("grace period of ages: got %s, want a day at least", got)
	}
	a.Annotations = map[string]string{runtime.AnnotationTerminationGracePeriod: "40"}
	if got := w.r.order(r, nil, &a).Grace; got != 40*time.Second {
		t.Errorf("grace period for a pod that is not known: got %s, want 40s", got)
	}
}

// CRR-129, CRR-166, CRR-067: a request that ended while the hook ran stops nothing and is not written again.
func TestARequestThatEndedMeanwhileStopsNothing(t *testing.T) {
	w, now := quiet(t)
	_ = w.rounds(1)
	r := now()
	if err := w.r.mayStop(t.Context(), r); err != nil {
		t.Errorf("a stop for a request that goes on: %v", err)
	}
	at := metav1.NewTime(epoch)
	r.Status.Phase, r.Status.CompletionTime = completed, &at
	if err := w.api.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := w.r.mayStop(t.Context(), r); err == nil {
		t.Error("a stop for a request that is completed: no error")
	} else if !errors.Is(err, stop.ErrNotStopped) || !strings.HasSuffix(err.Error(), "the request is completed") {
		t.Errorf("a stop for a request that is completed: got %v, want that it is completed", err)
	}
	before := now().ResourceVersion
	if err := w.r.recordStop(t.Context(), client.ObjectKeyFromObject(r), r.UID, "a", nil); err != nil {
		t.Errorf("recording a stop for a request that is completed: %v", err)
	}
	if version := now().ResourceVersion; version != before {
		t.Errorf("a request that is completed was written: version %s, want %s", version, before)
	}
	if err := w.api.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := w.r.mayStop(t.Context(), r); err == nil {
		t.Error("a stop for a request that is gone: no error")
	} else if !errors.Is(err, stop.ErrNotStopped) || !strings.HasSuffix(err.Error(), "the request is gone") {
		t.Errorf("a stop for a request that is gone: got %v, want that it is gone", err)
	}
}
