package restart

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
)

// asked makes a request for these containers, which were <name>-<n> when it was made.
func asked(name string, after time.Duration, n int32, containers []string, changes ...change) *appsv1beta1.ContainerRecreateRequest {
	r := request(states())
	r.Name, r.UID, r.CreationTimestamp = name, types.UID(name), metav1.NewTime(epoch.Add(after))
	r.Spec.Containers = nil
	for _, c := range containers {
		r.Spec.Containers = append(r.Spec.Containers, appsv1beta1.ContainerRecreateRequestContainer{Name: c,
			StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{
				ContainerID: run(c, int(n)).ID, RestartCount: n}})
	}
	for _, c := range changes {
		c(r)
	}
	return r
}

func fresh(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Phase = "" }

// exited is container a-<n>, which has ended.
func exited(n int) runtime.Container {
	c := run("a", n)
	c.Running, c.Exited = false, true
	return c
}

// daemon returns a daemon on this runtime, and the API server that has these objects.
func daemon(rt Runtime, clk clock.WithDelayedExecution, objects ...client.Object) (client.Client, *reconciler) {
	scheme := k8sruntime.NewScheme()
	_, _ = corev1.AddToScheme(scheme), appsv1beta1.AddToScheme(scheme)
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1beta1.ContainerRecreateRequest{}).WithObjects(objects...).Build()
	return api, &reconciler{requests: api, live: api, pods: api, clock: clk,
		runtimeOf: func(string) (Runtime, error) { return rt, nil },
		stopper: &stop.Stopper{Events: record.NewFakeRecorder(1000), Clock: clk, Stops: stop.NewStops(), Requester: "crr",
			Places: stop.NewPlaces()},
		wake: func(reconcile.Request) {}}
}

// stops plays the daemon for nine minutes with these containers, and returns which it stops first.
func stops(t *testing.T, containers []runtime.Container, requests ...*appsv1beta1.ContainerRecreateRequest) []string {
	t.Helper()
	h := &hanging{containers: containers}
	objects := []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}, {Name: "c"}}}}}
	for _, r := range requests {
		objects = append(objects, r)
	}
	clk, woken := testclock.NewFakeClock(epoch.Add(2*time.Minute)), make(chan struct{}, 1)
	_, r := daemon(h, clk, objects...)
	r.wake = func(reconcile.Request) { woken <- struct{}{} }
	key := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}}
	for end := clk.Now().Add(9 * time.Minute); clk.Now().Before(end); {
		result, err := r.Reconcile(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if _, underway := r.stops.Load(key.NamespacedName); underway {
			<-woken
			break
		}
		clk.Step(max(result.RequeueAfter, 100*time.Millisecond))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.stopped)
}

// CRR-121 (part), CRR-091 (part): a request with forceRecreate has stopped the first of its containers, for which an earlier request
// waits, too. It goes on with its next container, as it does without that earlier request: what it waits for is its own
// stop, and the container may not start for five minutes, or never.
func TestAForcedRequestIsNotHeldUpByItsOwnStop(t *testing.T) {
	killed := State{Name: "a", Phase: recreating, IsKilled: true}
	earlier := asked("earlier", 0, 0, []string{"a"}, states(killed))
	forced := asked("forced", time.Minute, 1, []string{"a", "c"}, force, states(killed, State{Name: "c", Phase: pending}))
	containers := []runtime.Container{exited(1), run("c", 1)}
	if got, want := stops(t, containers, forced), []string{"containerd://c-1"}; !slices.Equal(got, want) {
		t.Fatalf("without an earlier request, containers that were stopped: got %q, want %q", got, want)
	}
	if got, want := stops(t, containers, earlier, forced), []string{"containerd://c-1"}; !slices.Equal(got, want) {
		t.Errorf("containers that were stopped within nine minutes: got %q, want %q", got, want)
	}
}

// PPM-121 (part), CRR-091 (part): a request with forceRecreate has stopped all its containers. One for which an earlier request waits,
// too, has not started again yet. The other hangs in its start: its liveness probe restarts it, since nobody has it
// left to stop.
func TestAForcedRequestThatHasNothingLeftToStopKeepsNoLivenessProbeFromRestarting(t *testing.T) {
	killed := State{Name: "a", Phase: recreating, IsKilled: true}
	earlier := asked("earlier", 0, 0, []string{"a"}, states(killed))
	forced := asked("forced", time.Minute, 1, []string{"a", "c"}, force, states(killed, State{Name: "c", Phase: recreating, IsKilled: true}))
	probes := asked("liveness-u-c-2", 90*time.Second, 2, []string{"c"}, states(), fresh)
	containers := []runtime.Container{exited(1), run("c", 2)}
	want := []string{"containerd://c-2"}
	if got := stops(t, containers, forced, probes); !slices.Equal(got, want) {
		t.Fatalf("without an earlier request, containers that were stopped: got %q, want %q", got, want)
	}
	if got := stops(t, containers, earlier, forced, probes); !slices.Equal(got, want) {
		t.Errorf("containers that were stopped within nine minutes: got %q, want %q", got, want)
	}
}

// PPM-121 (part), CRR-091 (part): two requests have stopped all that they name. The remains of one container have been removed from the
// node, as kubelet does when its disk is full, and it does not start for a while. Another container, which only the second
// request names, hangs in its start: its liveness probe restarts it.
func TestARequestThatHasBegunAndHasNothingLeftToStopKeepsNoLivenessProbeFromRestarting(t *testing.T) {
	killed, done := State{Name: "a", Phase: recreating, IsKilled: true}, State{Name: "c", Phase: recreating, IsKilled: true}
	absent := State{Name: "a", Phase: pending, IsKilled: true, Message: notFound}
	earlier := asked("earlier", 0, 0, []string{"a"}, states(absent))
	second := asked("second", time.Minute, 0, []string{"a", "c"}, states(killed, done))
	probes := asked("liveness-u-c-2", 90*time.Second, 2, []string{"c"}, states(), fresh)
	containers := []runtime.Container{run("c", 2)}
	want := []string{"containerd://c-2"}
	if got := stops(t, containers, second, probes); !slices.Equal(got, want) {
		t.Fatalf("without the first request, containers that were stopped: got %q, want %q", got, want)
	}
	if got := stops(t, containers, earlier, second, probes); !slices.Equal(got, want) {
		t.Errorf("containers that were stopped within nine minutes: got %q, want %q", got, want)
	}
}

// CRR-091 (part), CRR-129 (part): a request whose deadline has passed by the clock of the node never begins. The manager, whose clock
// is behind, has not completed it yet. It keeps no liveness probe from restarting what it names.
func TestARequestWhoseDeadlineHasPassedKeepsNoLivenessProbeFromRestarting(t *testing.T) {
	absent := State{Name: "a", Phase: pending, Message: notFound}
	earlier := asked("earlier", 0, 0, []string{"a"}, states(absent))
	over := asked("over", time.Minute, 0, []string{"a", "c"}, states(), fresh, func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.ActiveDeadlineSeconds = new(int64(60))
	})
	probes := asked("liveness-u-c-2", 90*time.Second, 2, []string{"c"}, states(), fresh)
	if got, want := stops(t, []runtime.Container{run("c", 2)}, earlier, over, probes),
		[]string{"containerd://c-2"}; !slices.Equal(got, want) {
		t.Errorf("containers that were stopped within nine minutes: got %q, want %q", got, want)
	}
}

// CRR-091 (part), CRR-128 (part): a container that another request has stopped has been created again, and not started yet. A request
// with forceRecreate waits until it runs: a runtime does not stop what does not run, and answers that it did.
func TestAForcedRequestWaitsForAContainerThatIsOnlyCreated(t *testing.T) {
	created := run("a", 1)
	created.Running = false
	s := Snapshot{Request: asked("earlier", 0, 0, []string{"a"}, states(State{Name: "a", Phase: recreating, IsKilled: true})),
		Containers: []runtime.Container{exited(0), created}, Seen: epoch, Now: epoch.Add(time.Minute)}
	if !waitsBehind(s, asked("forced", time.Minute, 0, []string{"a"}, force)) {
		t.Error("it begins before the container runs")
	}
}

// CRR-128 (part): a request with forceRecreate that is made while a container has not started since its creation does not count
// the start, which it did not cause, as its own restart.
func TestAForcedRequestDoesNotStopAContainerThatIsOnlyCreated(t *testing.T) {
	created := run("a", 1)
	created.Running = false
	s := Snapshot{Request: asked("forced", time.Minute, 0, []string{"a"}, force,
		states(State{Name: "a", Phase: pending, Message: stopping + created.ID})),
		Containers: []runtime.Container{exited(0), created}, Seen: epoch, Now: epoch.Add(time.Minute)}
	if plan := NewPlan(s); plan.Stop != nil {
		t.Errorf("it stops %s, which does not run", plan.Stop.ID)
	}
}

// PPM-121 (part), CRR-091 (part), CRR-093 (part): a request with forceRecreate waits behind one for a container that crashes in its start: it runs for
// a moment every five minutes, so that it is never seen running. The forced one names another container, too, whose liveness
// probe fails: that one is restarted, by one request or the other.
func TestAForcedRequestBehindAContainerThatCrashesKeepsNoLivenessProbeFromRestartingAnother(t *testing.T) {
	earlier := asked("earlier", 0, 0, []string{"a"}, states(State{Name: "a", Phase: recreating, IsKilled: true}))
	forced := asked("forced", time.Minute, 1, []string{"a", "c"}, states(), fresh, force)
	probes := asked("liveness-u-c-1", 90*time.Second, 1, []string{"c"}, states(), fresh)
	containers := []runtime.Container{exited(7), run("c", 1)}
	want := []string{"containerd://c-1"}
	if got := stops(t, containers, earlier, probes); !slices.Equal(got, want) {
		t.Fatalf("without the forced request, containers that were stopped: got %q, want %q", got, want)
	}
	if got := stops(t, containers, forced, probes); !slices.Equal(got, want) {
		t.Fatalf("without the earlier request, containers that were stopped: got %q, want %q", got, want)
	}
	if got := stops(t, containers, earlier, forced, probes); !slices.Equal(got, want) {
		t.Errorf("containers that were stopped within nine minutes: got %q, want %q", got, want)
	}
}

// CRR-091 (part), CRR-126 (part): a request has stopped its container, of which kubelet has removed the remains, and which does not start again,
// since its image cannot be pulled. It has nothing left to stop, and so keeps no later request from stopping another
// container, as nothing else does.
func TestARequestWhoseStoppedContainerIsGoneHoldsUpNoOther(t *testing.T) {
	earlier := asked("earlier", 0, 0, []string{"a"}, states(State{Name: "a", Phase: pending, IsKilled: true, Message: notFound}))
	later := asked("later", time.Minute, 0, []string{"a", "c"}, states(), fresh)
	containers, want := []runtime.Container{run("c", 0)}, []string{"containerd://c-0"}
	if got := stops(t, containers, later); !slices.Equal(got, want) {
		t.Fatalf("without the earlier request, containers that were stopped: got %q, want %q", got, want)
	}
	if got := stops(t, containers, earlier, later); !slices.Equal(got, want) {
		t.Errorf("containers that were stopped within nine minutes: got %q, want %q", got, want)
	}
}
