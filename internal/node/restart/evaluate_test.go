package restart

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

var epoch = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

type change func(*appsv1beta1.ContainerRecreateRequest)

// request is for containers a and b, which run as a-0 and b-0; it is Recreating with both pending.
func request(changes ...change) *appsv1beta1.ContainerRecreateRequest {
	r := &appsv1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "r", CreationTimestamp: metav1.NewTime(epoch),
			Labels: map[string]string{pub.RecreateActive: "true", pub.RecreateNodeName: "node", pub.RecreatePodUID: "u"}},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "p",
			Strategy: &appsv1beta1.ContainerRecreateRequestStrategy{FailurePolicy: "Fail"}},
	}
	for _, name := range []string{"a", "b"} {
		r.Spec.Containers = append(r.Spec.Containers, appsv1beta1.ContainerRecreateRequestContainer{Name: name,
			StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{ContainerID: "containerd://" + name + "-0"}})
		r.Status.ContainerRecreateStates = append(r.Status.ContainerRecreateStates, State{Name: name, Phase: pending})
	}
	r.Status.Phase = recreating
	for _, c := range changes {
		c(r)
	}
	return r
}

func states(list ...State) change {
	return func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.ContainerRecreateStates = list }
}

func strategy(set func(*appsv1beta1.ContainerRecreateRequestStrategy)) change {
	return func(r *appsv1beta1.ContainerRecreateRequest) { set(r.Spec.Strategy) }
}

func ready(ids ...string) change {
	return func(r *appsv1beta1.ContainerRecreateRequest) {
		for _, id := range ids {
			r.Status.ContainerStatusSnapshot = append(r.Status.ContainerStatusSnapshot,
				appsv1beta1.ContainerRecreateRequestContainerStatus{Name: id[:1], Ready: true, ContainerID: "containerd://" + id})
		}
	}
}

var (
	force   = strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) { s.ForceRecreate = true })
	inOrder = strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) { s.OrderedRecreate = true })
	ignore  = strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) { s.FailurePolicy = "Ignore" })
)

// run returns the running container <name>-<n>; end returns one that has ended.
func run(name string, n int) runtime.Container {
	return runtime.Container{ID: fmt.Sprintf("containerd://%s-%d", name, n), Name: name, PodNamespace: "ns", PodName: "p", PodUID: "u",
		Running:   true,
		CreatedAt: epoch.Add(time.Duration(n) * time.Minute), RestartCount: int32(n)}
}

func end() runtime.Container {
	c := run("a", 0)
	c.Running, c.Exited = false, true
	return c
}

// CRR-110 to CRR-131, rule by rule.
func TestEvaluate(t *testing.T) {
	st := func(name string, phase appsv1beta1.ContainerRecreateRequestPhase, killed bool, message ...string) State {
		s := State{Name: name, Phase: phase, IsKilled: killed}
		if len(message) > 0 {
			s.Message = message[0]
		}
		return s
	}
	pod := func(policy corev1.RestartPolicy, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
			Status: corev1.PodStatus{Phase: phase}}
	}
	seconds := func(n int64) *int64 { return &n }
	alike := []runtime.Container{run("a", 0), run("b", 0)}
	const givenUp = "given up because container a failed"
	type rule struct {
		request    *appsv1beta1.ContainerRecreateRequest
		containers []runtime.Container
		pod        *corev1.Pod
		exit       int32
		want       Plan
		states     []State // if they differ from those recorded
		stop       string
	}
	// foreign is the case of a container that belongs to another pod by the runtime's labels: it is not
	// stopped.
	foreign := func(change func(*runtime.Container), pod string) rule {
		other := run("a", 0)
		change(&other)
		return rule{request: request(), containers: []runtime.Container{other, run("b", 0)}, want: Plan{Record: true},
			states: []State{st("a", failed, false, "the container belongs to pod "+pod+", which is not that of the request"),
				st("b", pending, false)}}
	}
	for name, test := range map[string]rule{
		"CRR-094 new: straight to Recreating": {request: request(states(),
			func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Phase = "" }), containers: alike,
			states: []State{st("a", pending, false), st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-123 the first is stopped": {request: request(), containers: alike, stop: "containerd://a-0"},
		"CRR-121 unordered: the next when it is stopped": {request: request(states(st("a", recreating, true), st("b", pending, false))),
			containers: []runtime.Container{end(), run("b", 0)}, stop: "containerd://b-0"},
		"CRR-122 ordered: not before it is back": {request: request(inOrder, states(st("a", recreating, true), st("b", pending, false))),
			containers: []runtime.Container{run("a", 1), run("b", 0)},
			want:       Plan{Waiting: "container a has to come back ready"}},
		"CRR-122 ordered: it is back": {request: request(inOrder, states(st("a", succeeded, true), st("b", pending, false))),
			containers: []runtime.Container{run("a", 1), run("b", 0)}, stop: "containerd://b-0"},
		"CRR-122 ordered: it failed and is ignored": {request: request(inOrder, ignore,
			states(st("a", failed, false), st("b", pending, false))), containers: alike, stop: "containerd://b-0"},
		"CRR-110 final states stay": {request: request(states(st("a", succeeded, true, "x"), st("b", succeeded, false))),
			want: Plan{Record: true, Complete: true, Phase: completed}},
		"CRR-111 not on the node": {request: request(), containers: []runtime.Container{run("a", 0)},
			states: []State{st("a", pending, false), st("b", pending, false, notFound)}, want: Plan{Record: true}},
		"CRR-126 the missing one does not hold up the next": {
			request:    request(states(st("a", pending, false, notFound), st("b", pending, false))),
			containers: []runtime.Container{run("b", 0)}, stop: "containerd://b-0"},
		"CRR-120 ordered: the missing one does": {request: request(inOrder,
			states(st("a", pending, false, notFound), st("b", pending, false))), containers: []runtime.Container{run("b", 0)},
			want: Plan{Waiting: "container a is not on the node"}},
		"CRR-112 it ended": {request: request(), containers: []runtime.Container{end(), run("b", 0)}, pod: pod("Always", "Running"),
			states: []State{st("a", recreating, false), st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-124 marked without a stop": {request: request(states(st("a", recreating, false), st("b", pending, false))),
			containers: []runtime.Container{end(), run("b", 0)}, pod: pod("Always", "Running"),
			states: []State{st("a", recreating, true), st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-128 restarted before: counts as recreated": {request: request(ready("a-1")),
			containers: []runtime.Container{run("a", 1), run("b", 0)},
			states:     []State{st("a", succeeded, false), st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-114, CRR-165 restarted under the same ID": {request: request(),
			containers: []runtime.Container{func() runtime.Container { c := run("a", 0); c.RestartCount = 1; return c }(), run("b", 0)},
			states:     []State{st("a", recreating, false), st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-114 ready is another one": {request: request(ready("a-1"), states(st("a", recreating, true), st("b", recreating, true))),
			containers: []runtime.Container{run("a", 2), run("b", 1)},
			want:       Plan{Waiting: "container a has to come back ready"}},
		"CRR-118, CRR-119 not long enough": {request: request(ready("a-1"),
			strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) { s.MinStartedSeconds = 61 }),
			states(st("a", recreating, true), st("b", recreating, true))), containers: []runtime.Container{run("a", 9), run("b", 9)},
			want: Plan{Waiting: "container a has to come back ready"}},
		"CRR-113 force: recorded first": {request: request(force), containers: alike,
			states: []State{st("a", pending, false, "stopping container containerd://a-0"), st("b", pending, false)},
			want:   Plan{Record: true}},
		"CRR-113 force: also what restarted since": {request: request(force,
			states(st("a", pending, false, "stopping container containerd://a-1"), st("b", pending, false))),
			containers: []runtime.Container{run("a", 1), run("b", 0)}, stop: "containerd://a-1"},
		"CRR-130 force: the recorded one is gone, it was stopped": {request: request(force,
			states(st("a", pending, false, "stopping container containerd://a-0"), st("b", pending, false))),
			containers: []runtime.Container{run("a", 1), run("b", 0)}, states: []State{st("a", recreating, true), st("b", pending, false)},
			want: Plan{Record: true}},
		"CRR-130 force: the recorded one ended": {request: request(force,
			states(st("a", pending, false, "stopping container containerd://a-0"), st("b", pending, false))), pod: pod("Always", "Running"),
			containers: []runtime.Container{end(), run("b", 0)}, states: []State{st("a", recreating, true), st("b", pending, false)},
			want: Plan{Record: true}},
		"CRR-130 killed and still there: not again": {request: request(states(st("a", pending, true), st("b", succeeded, true))),
			containers: alike,
			want:       Plan{Waiting: "container a has to end"}},
		"CRR-115 it runs as when the request was made, and was stopped for it": {
			request: request(states(st("a", recreating, true), st("b", succeeded, true))), containers: alike,
			states: []State{st("a", pending, true), st("b", succeeded, true)}, want: Plan{Record: true}},
		"CRR-115 it runs as when the request was made, and was not stopped": {
			request: request(states(st("a", recreating, false), st("b", succeeded, true))), containers: alike,
			states: []State{st("a", pending, false), st("b", succeeded, true)}, want: Plan{Record: true}},
		"CRR-117 the states are in the order of the spec": {request: request(states(st("b", pending, false), st("a", pending, false))),
			containers: alike,
			states:     []State{st("a", pending, false), st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-117 what changed is recorded before anything is stopped": {
			request: request(states(st("a", recreating, true), st("b", pending, false))), containers: alike[1:],
			states: []State{st("a", pending, true, notFound), st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-125 Fail ends the request": {
			request: request(states(st("a", failed, false, "kill container error: x"), st("b", pending, false))), containers: alike,
			states: []State{st("a", failed, false, "kill container error: x"), st("b", failed, false, givenUp)},
			want:   Plan{Record: true, Complete: true, Phase: completed}},
		"CRR-125 Ignore goes on": {request: request(ignore, states(st("a", failed, false), st("b", pending, false))),
			containers: alike, stop: "containerd://b-0"},
		"CRR-127 Ignore ends, too": {request: request(ignore, states(st("a", failed, false), st("b", succeeded, true))),
			want: Plan{Record: true, Complete: true, Phase: completed}},
		"CRR-099, CRR-168 of another namespace": foreign(func(c *runtime.Container) { c.PodNamespace = "kube-system" }, "kube-system/p"),
		"CRR-099 another pod's":                 foreign(func(c *runtime.Container) { c.PodName = "q" }, "ns/q"),
		"CRR-099 of a former pod of the name":   foreign(func(c *runtime.Container) { c.PodUID = "former" }, "ns/p"),
		"CRR-099 nobody knows of which pod": foreign(func(c *runtime.Container) { c.PodNamespace, c.PodName, c.PodUID = "", "", "" },
			"/"),
		"CRR-131, CRR-167 the pod has ended": {request: request(), containers: []runtime.Container{end(), run("b", 0)},
			pod: pod("Always", "Succeeded"),
			states: []State{st("a", succeeded, false, "the container stays stopped: the pod has ended (Succeeded)"),
				st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-131 Never": {request: request(), containers: []runtime.Container{end(), run("b", 0)}, pod: pod("Never", "Running"), exit: 3,
			states: []State{st("a", succeeded, false,
				"the container stays stopped: it ended with exit code 3 and its restart policy does not start it again"),
				st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-131 OnFailure and exit code 3": {request: request(), containers: []runtime.Container{end(), run("b", 0)},
			pod: pod("OnFailure", "Running"), exit: 3,
			states: []State{st("a", recreating, false), st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-131 OnFailure and exit code 0": {request: request(), containers: []runtime.Container{end(), run("b", 0)},
			pod: pod("OnFailure", "Running"),
			states: []State{st("a", succeeded, false,
				"the container stays stopped: it ended with exit code 0 and its restart policy does not start it again"),
				st("b", pending, false)}, want: Plan{Record: true}},
		"CRR-086 no condition yet": {
			request: request(
				strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) { s.UnreadyGracePeriodSeconds = seconds(0) })),
			containers: alike,
			want:       Plan{Waiting: "the pod has not been made not ready yet"}},
		"CRR-086 the grace period runs": {
			request: request(strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) { s.UnreadyGracePeriodSeconds = seconds(5) }),
				unready(epoch.Add(8*time.Minute+56*time.Second))), containers: alike,
			want: Plan{Waiting: "the pod is not ready for 5 s before containers are stopped", After: time.Second}},
		"CRR-086 ages": {request: request(strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) {
			s.UnreadyGracePeriodSeconds = seconds(9999999999)
		}), unready(epoch)), containers: alike,
			want: Plan{Waiting: "the pod is not ready for 9999999999 s before containers are stopped", After: poll}},
		"CRR-086 it is over": {
			request: request(strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) { s.UnreadyGracePeriodSeconds = seconds(5) }),
				unready(epoch)), containers: alike, stop: "containerd://a-0"},
		"CRR-096 completed": {request: request(func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.CompletionTime = &metav1.Time{} }),
			containers: alike, want: Plan{Waiting: "the request is completed"}},
		"CRR-096 deleted": {request: request(func(r *appsv1beta1.ContainerRecreateRequest) { r.DeletionTimestamp = &metav1.Time{} }),
			containers: alike, want: Plan{Waiting: "the request is being deleted"}},
		"CRR-129 expired": {
			request:    request(func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.ActiveDeadlineSeconds = seconds(60) }),
			containers: alike, want: Plan{Waiting: "the request has exceeded its activeDeadlineSeconds"}},
		"CRR-141 not active": {request: request(func(r *appsv1beta1.ContainerRecreateRequest) { delete(r.Labels, pub.RecreateActive) }),
			containers: alike, want: Plan{Waiting: "the request is not active any more"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := epoch.Add(9 * time.Minute)
			s := Snapshot{Request: test.request, Containers: test.containers, Pod: test.pod, Seen: epoch, Now: now,
				Inspected: map[string]runtime.Status{}}
			if conditions := test.request.Status.Conditions; len(conditions) > 0 { // the clocks agree
				s.UnreadySince = conditions[0].LastTransitionTime.Time
			}
			for _, c := range test.containers {
				s.Inspected[c.ID] = runtime.Status{Container: c, StartedAt: c.CreatedAt, ExitCode: test.exit}
			}
			got := NewPlan(s)
			want := test.want
			if want.States = test.states; want.States == nil && finished(test.request, epoch, now) == "" {
				want.States = test.request.Status.ContainerRecreateStates
			}
			if want.Phase == "" && finished(test.request, epoch, now) == "" {
				want.Phase = recreating
			}
			ignored := cmpopts.IgnoreFields(Plan{}, "After", "Stop")
			if test.want.After != 0 {
				ignored = cmpopts.IgnoreFields(Plan{}, "Stop")
			}
			if want.Record {
				got.Waiting = ""
			}
			if diff := cmp.Diff(want, got, ignored, cmpopts.IgnoreUnexported(Plan{})); diff != "" {
				t.Errorf("the plan (-want +got):\n%s", diff)
			}
			if stop := got.Stop; (stop == nil) != (test.stop == "") {
				t.Errorf("the container that is stopped: got %+v, want %q", stop, test.stop)
			} else if stop != nil && stop.ID != test.stop {
				t.Errorf("the container that is stopped: got %s, want %s", stop.ID, test.stop)
			}
			if got.Waiting != "" && finished(test.request, epoch, now) == "" && (got.After <= 0 || got.After > poll) {
				t.Errorf("waits for %s and looks again after %s, want %s at most",
					got.Waiting, got.After, poll)
			}
		})
	}
}

func unready(at time.Time) change {
	return func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: appsv1beta1.ContainerRecreateRequestPreRecreateGrace,
			Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)})
	}
}

// CRR-092: Recreating, then Pending, then new ones; older first, then by name.
func TestOrder(t *testing.T) {
	of := func(name string, phase appsv1beta1.ContainerRecreateRequestPhase, minutes int) *appsv1beta1.ContainerRecreateRequest {
		return request(func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Name, r.Status.Phase, r.CreationTimestamp = name, phase, metav1.NewTime(epoch.Add(time.Duration(minutes)*time.Minute))
		})
	}
	list := []*appsv1beta1.ContainerRecreateRequest{of("f", "", 1), of("e", "", 1), of("d", "", 0), of("c", pending, 3),
		of("b", pending, 2), of("a", recreating, 9)}
	order(list, hasBegun)
	got := ""
	for _, r := range list {
		got += r.Name
	}
	if got != "abcdef" {
		t.Errorf("order of the requests: got %s, want abcdef", got)
	}
}

// CRR-100: errors in finding the runtime of a request.
func TestErrorsInFindingTheRuntimeAreTold(t *testing.T) {
	for want, c := range map[string]change{
		"":                                  func(*appsv1beta1.ContainerRecreateRequest) {},
		"container b has no status context": func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Containers[1].StatusContext = nil },
		"containers of both containerd and docker": func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Spec.Containers[1].StatusContext.ContainerID = "docker://b"
		},
		`ID "a" of container a does not have the form <runtime>://<id>`: func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Spec.Containers[0].StatusContext.ContainerID = "a"
		},
		"the request names no container": func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Spec.Containers = nil
		},
	} {
		err := sameRuntime(request(c))
		if got := fmt.Sprint(err); got != want && (err != nil || want != "") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// CRR-129 (part): the deadline is over when more than its time has passed since the daemon first saw the
// request.
func TestTheDeadlineOfARequest(t *testing.T) {
	ten := int64(10)
	limited := request(func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.ActiveDeadlineSeconds = &ten })
	for after, over := range map[time.Duration]bool{0: false, 10 * time.Second: false, 10*time.Second + 1: true} {
		if why := finished(limited, epoch, epoch.Add(after)); (why != "") != over {
			t.Errorf("%s after the request was seen: ends because of %q, want its deadline over: %t",
				after, why, over)
		}
	}
	if why := finished(request(), epoch, epoch.Add(time.Hour)); why != "" {
		t.Errorf("a request without a deadline: ends because of %q, want no end", why)
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
		if got := s.back(&current, plan); got != tt.back {
			t.Errorf("%s: the container is back: got %t, want %t", name, got, tt.back)
		}
		if plan.After != tt.again {
			t.Errorf("%s: the next pass is due in %s, want %s", name, plan.After, tt.again)
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
			t.Errorf("container %s stays stopped because %q, want that it stays: %t", name, why, stays)
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
	if len(plan.States) != 1 {
		t.Errorf("containers of the request: got %+v, want 1", plan.States)
	} else if plan.States[0].Phase != succeeded {
		t.Errorf("the container: got %+v, want it %s; waits for: %s", plan.States[0], succeeded, plan.Waiting)
	}
}
