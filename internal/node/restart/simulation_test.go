package restart

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var errDied = errors.New("the daemon died")

// world is one pod with its requests: an API server, a cache that lags, a runtime, kubelet, the manager,
// users, and a daemon that dies between any two steps.
type world struct {
	t          *testing.T
	random     *rand.Rand
	clock      *testclock.FakeClock
	api        client.WithWatch
	cached     []appsv1beta1.ContainerRecreateRequest
	containers []runtime.Container
	exits      map[string]int32
	r          *reconciler
	woken      chan struct{} // after a stop

	fuse     int // calls until the daemon dies; below 0 never
	dead     bool
	cancel   context.CancelFunc
	calm     bool
	by       string
	stops    map[string]map[string]bool // by request and container: the IDs stopped
	trace    []string
	traces   sync.Mutex
	requests int
	calls    sync.Mutex // a hook that is abandoned may still be on its way
}

func (w *world) logf(format string, args ...any) {
	w.traces.Lock()
	defer w.traces.Unlock()
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.wrong(format, args...)
	w.t.FailNow()
}

// wrong is fatalf for what runs beside the test.
func (w *world) wrong(format string, args ...any) {
	w.t.Helper()
	w.traces.Lock()
	trace := strings.Join(w.trace, "\n")
	w.traces.Unlock()
	w.t.Errorf(format+"\n%s", append(args, trace)...)
}

// call wraps one call of the daemon to the world: the daemon may die before or after it, or the call may
// fail.
func (w *world) call(what string, do func() error) error {
	w.calls.Lock()
	defer w.calls.Unlock()
	if w.dead {
		return errDied
	}
	if w.fuse == 0 {
		w.dead = true
		w.cancel()
		if w.random.IntN(2) == 0 {
			w.logf("  died before: %s", what)
			return errDied
		}
		err := do()
		w.logf("  died after: %s", what)
		return errors.Join(err, errDied)
	}
	w.fuse--
	return do()
}

func (w *world) Containers(_ context.Context, uid string) (list []runtime.Container, err error) {
	err = w.call("list", func() error {
		for _, c := range w.containers {
			if c.PodUID == uid {
				list = append(list, c)
			}
		}
		return nil
	})
	return list, err
}

func (w *world) Status(_ context.Context, id string) (status runtime.Status, err error) {
	err = w.call("inspect", func() error {
		for _, c := range w.containers {
			if c.ID == id {
				status = runtime.Status{Container: c, StartedAt: c.CreatedAt, ExitCode: w.exits[id]}
				return nil
			}
		}
		return runtime.ErrNotFound
	})
	return status, err
}

func (w *world) Exec(context.Context, string, []string, time.Duration) error {
	return w.call("exec", func() error { return nil })
}

// Stop checks what must never happen: one request never stops a container twice, and a completed request
// stops none.
func (w *world) Stop(_ context.Context, id string, _ time.Duration) error {
	return w.call("stop", func() error {
		if !w.calm && w.random.IntN(20) == 0 {
			return runtime.ErrUnavailable
		}
		request := &appsv1beta1.ContainerRecreateRequest{}
		if err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: "ns", Name: w.by}, request); err != nil ||
			finished(request, w.r.sighting(request).request, w.clock.Now()) != "" {
			w.wrong("%s is stopped for %s: %v %+v", id, w.by, err, request.Status)
		}
		for i := range w.containers {
			c := &w.containers[i]
			if c.ID != id || !c.Running {
				continue
			}
			if !request.Spec.Strategy.ForceRecreate && !slices.ContainsFunc(request.Spec.Containers,
				func(asked appsv1beta1.ContainerRecreateRequestContainer) bool {
					return asked.StatusContext.ContainerID == id
				}) {
				w.wrong("%s is stopped for %s, which was made for the one before", id, w.by)
			}
			w.inTurn(c.Name)
			key := w.by + "/" + c.Name
			if w.stops[key] == nil {
				w.stops[key] = map[string]bool{}
			}
			w.stops[key][id] = true
			w.logf("  stopped %s for %s", id, w.by)
			if len(w.stops[key]) > 1 {
				w.wrong("%s stopped %v", key, w.stops[key])
			}
			c.Running, c.Exited = false, true
			w.exits[id] = 143
		}
		return nil
	})
}

// inTurn checks that a container is not stopped for a request while one before it, of those that the daemon knew, has it left to stop.
func (w *world) inTurn(container string) {
	known := make([]*appsv1beta1.ContainerRecreateRequest, len(w.cached))
	for i := range w.cached {
		known[i] = &w.cached[i]
	}
	order(known, func(r *appsv1beta1.ContainerRecreateRequest) bool { return hasBegun(r) || w.r.sighting(r).begun })
	for _, before := range known {
		if before.Name == w.by {
			return
		}
		named := slices.ContainsFunc(before.Spec.Containers, func(c appsv1beta1.ContainerRecreateRequestContainer) bool { return c.Name == container })
		has := slices.ContainsFunc(before.Status.ContainerRecreateStates,
			func(s State) bool { return s.Name == container && (s.Phase != pending || s.IsKilled) })
		if named && !has && finished(before, w.r.sighting(before).request, w.clock.Now()) == "" {
			w.wrong("%s is stopped for %s, and %s has it left to stop", container, w.by, before.Name)
		}
	}
}

// Event, Eventf and AnnotatedEventf record the events, which name the request that stops a container.
func (w *world) Event(k8sruntime.Object, string, string, string) {}
func (w *world) Eventf(_ k8sruntime.Object, _, reason, _ string, args ...any) {
	if reason == stop.ReasonKilling {
		w.by = strings.TrimPrefix(args[1].(string), "ContainerRecreateRequest ")
	}
}
func (w *world) AnnotatedEventf(k8sruntime.Object, map[string]string, string, string, string, ...any) {
}

// Get and List read the lagging cache.
func (w *world) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	return w.api.Get(ctx, key, object)
}

func (w *world) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	requests := list.(*appsv1beta1.ContainerRecreateRequestList)
	for i := range w.cached {
		requests.Items = append(requests.Items, *w.cached[i].DeepCopy())
	}
	return nil
}

func newWorld(t *testing.T, seed uint64) *world {
	scheme := k8sruntime.NewScheme()
	_ = corev1.AddToScheme(scheme)
	_ = appsv1beta1.AddToScheme(scheme)
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 0)), clock: testclock.NewFakeClock(epoch), exits: map[string]int32{},
		stops: map[string]map[string]bool{}, fuse: -1}
	// The builder's own tracker records field owners, which this test does not need.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	w.api = fake.NewClientBuilder().WithObjectTracker(tracker).WithScheme(scheme).
		WithStatusSubresource(&appsv1beta1.ContainerRecreateRequest{}).WithObjects(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}).Build()
	live := interceptor.NewClient(w.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			return w.call("get", func() error { return c.Get(ctx, key, object, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, object client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			return w.call("write", func() error {
				if !w.calm && w.random.IntN(10) == 0 {
					return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("simulated"))
				}
				body, _ := patch.Data(object)
				err := c.Status().Patch(context.WithoutCancel(ctx), object, patch, opts...)
				w.logf("  wrote %s: %s %v", object.GetName(), body, err)
				return err
			})
		},
	})
	w.woken = make(chan struct{}, 10)
	w.r = &reconciler{requests: w, wake: func(reconcile.Request) { w.woken <- struct{}{} }, live: live, pods: w.api, clock: w.clock,
		runtimeOf: func(string) (Runtime, error) { return w, nil },
		stopper:   &stop.Stopper{Events: w, Clock: w.clock, Stops: stop.NewStops()}}
	for _, name := range []string{"a", "b"} {
		w.containers = append(w.containers, run(name, 0))
	}
	return w
}

func (w *world) all() []appsv1beta1.ContainerRecreateRequest {
	list := &appsv1beta1.ContainerRecreateRequestList{}
	if err := w.api.List(w.t.Context(), list); err != nil {
		w.fatalf("%v", err)
	}
	return list.Items
}

func (w *world) create() {
	w.requests++
	r := request(states(), func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Name, r.UID, r.Status.Phase = fmt.Sprintf("r%d", w.requests), types.UID(fmt.Sprint(w.requests)), ""
		r.CreationTimestamp = metav1.NewTime(w.clock.Now())
	})
	deadline := int64(600)
	r.Spec.ActiveDeadlineSeconds = &deadline
	r.Spec.Strategy.ForceRecreate = w.random.IntN(2) == 0
	r.Spec.Strategy.OrderedRecreate = w.random.IntN(2) == 0
	r.Spec.Strategy.MinStartedSeconds = int32(w.random.IntN(3))
	for i := range r.Spec.Containers {
		c := runtime.Newest(w.containers, r.Spec.Containers[i].Name)
		r.Spec.Containers[i].StatusContext = &appsv1beta1.ContainerRecreateRequestContainerContext{ContainerID: c.ID,
			RestartCount: c.RestartCount}
		if w.random.IntN(2) == 0 {
			r.Spec.Containers[i].PreStop = &appsv1beta1.ProbeHandler{Exec: &corev1.ExecAction{}}
		}
	}
	if err := w.api.Create(w.t.Context(), r); err != nil {
		w.fatalf("%v", err)
	}
	w.logf("created %s, strategy %+v", r.Name, *r.Spec.Strategy)
}

// kubelet plays the kubelet: it starts ended containers again.
func (w *world) kubelet() {
	for _, name := range []string{"a", "b"} {
		if c := runtime.Newest(w.containers, name); c.Exited {
			next := run(name, int(c.RestartCount)+1)
			next.CreatedAt = w.clock.Now()
			w.containers = append(w.containers, next)
			w.logf("kubelet started %s", next.ID)
		}
	}
}

// manager plays the manager: snapshots, deadlines, the label.
func (w *world) manager() {
	for _, r := range w.all() {
		before := r.DeepCopy()
		switch {
		case r.Status.CompletionTime != nil:
			delete(r.Labels, pub.RecreateActive)
			_ = w.api.Patch(w.t.Context(), &r, client.MergeFrom(before))
		case w.clock.Since(r.CreationTimestamp.Time) > time.Duration(*r.Spec.ActiveDeadlineSeconds)*time.Second:
			now := metav1.NewTime(w.clock.Now())
			r.Status.Phase, r.Status.CompletionTime = completed, &now
			_ = w.api.Status().Patch(w.t.Context(), &r, client.MergeFrom(before))
			w.logf("the manager completed %s", r.Name)
		case r.Status.Phase == recreating:
			r.Status.ContainerStatusSnapshot = nil
			for _, asked := range r.Spec.Containers {
				if c := runtime.Newest(w.containers, asked.Name); c.Running && c.ID != asked.StatusContext.ContainerID {
					r.Status.ContainerStatusSnapshot = append(r.Status.ContainerStatusSnapshot,
						appsv1beta1.ContainerRecreateRequestContainerStatus{Name: c.Name, ContainerID: c.ID, RestartCount: c.RestartCount,
							Ready: true})
				}
			}
			_ = w.api.Status().Patch(w.t.Context(), &r, client.MergeFrom(before))
		}
	}
}

func (w *world) sync() {
	w.cached = nil
	for _, r := range w.all() {
		if r.Labels[pub.RecreateActive] == "true" {
			w.cached = append(w.cached, r)
		}
	}
}

// settle waits until the stop that a round has begun is over.
func (w *world) settle() {
	if _, begun := w.r.stops.Load(types.NamespacedName{Namespace: "ns", Name: "p"}); begun {
		<-w.woken
	}
}

func (w *world) daemon() {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.calls.Lock()
	w.dead, w.cancel, w.fuse = false, cancel, -1
	if !w.calm && w.random.IntN(3) == 0 {
		w.fuse = w.random.IntN(12)
	}
	w.calls.Unlock()
	result, err := w.r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}})
	w.settle()
	if ctx.Err() != nil {
		w.r.stops.Clear() // the next daemon does not know it
	}
	w.calls.Lock() // further calls of an abandoned hook have no effect from here on
	w.dead = true
	w.calls.Unlock()
	w.logf("daemon: %+v %v", result, err)
	open := false
	for _, r := range w.cached {
		open = open || r.Status.CompletionTime == nil
	}
	if open && err == nil && result.RequeueAfter <= 0 && w.calm {
		w.fatalf("the daemon relies on an event")
	}
}

// answers runs the answerer on the requests in the cache.
func (w *world) answers() {
	w.calls.Lock()
	w.dead, w.fuse = false, -1
	w.calls.Unlock()
	for i := range w.cached {
		result, err := w.answer(w.cached[i].Name)
		w.logf("answered %s: %+v %v", w.cached[i].Name, result, err)
	}
	w.calls.Lock()
	w.dead = true
	w.calls.Unlock()
}

func (w *world) step() {
	switch n := w.random.IntN(22); {
	case n == 0 && w.requests < 4:
		w.create()
	case n == 1:
		if c := runtime.Newest(w.containers, []string{"a", "b"}[w.random.IntN(2)]); c.Running {
			c.Running, c.Exited = false, true
			w.logf("%s crashed", c.ID)
		}
	case n == 2 && w.random.IntN(8) == 0:
		for _, r := range w.all() {
			_ = w.api.Delete(w.t.Context(), &r)
			w.logf("deleted %s", r.Name)
			break
		}
	case n < 5:
		w.kubelet()
	case n < 8:
		w.manager()
	case n < 12:
		w.sync()
	case n < 14:
		w.answers()
	case n < 15:
		w.clock.Step(time.Duration(w.random.IntN(4000)) * time.Millisecond)
	default:
		w.daemon()
	}
}

// CRR-091 (part), CRR-093 (part), CRR-095 (part), CRR-097 (part), CRR-098 (part), CRR-113 (part), CRR-128 to
// CRR-130, CRR-160 (part), CRR-166 (part): the daemon dies between any two steps, writes conflict, the watch
// lags. No request stops two containers of the same name, none stops anything once it is completed or
// deleted, one request of a pod stops containers at a time, and all of them end.
func TestSimulatedRequests(t *testing.T) {
	var runs, stopped atomic.Int64
	simulationtest.Seeds(t, 50, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		w.create()
		for range 150 {
			w.step()
		}
		w.calm = true
		for round := 0; ; round++ {
			w.sync()
			w.daemon()
			w.kubelet()
			w.manager()
			w.clock.Step(time.Second)
			open := 0
			for _, r := range w.all() {
				if r.Status.CompletionTime == nil {
					open++
				}
			}
			if open == 0 {
				break
			}
			if round > 200 {
				w.fatalf("%d requests do not end", open)
			}
		}
		for _, r := range w.all() {
			for _, s := range r.Status.ContainerRecreateStates {
				if key := r.Name + "/" + s.Name; s.Phase == succeeded && r.Spec.Strategy.ForceRecreate && !s.IsKilled {
					w.fatalf("%s succeeded without a stop", key)
				}
			}
		}
		runs.Add(1)
		stopped.Add(int64(len(w.stops)))
	})
	if os.Getenv("SEED") == "" && stopped.Load() < runs.Load() {
		t.Errorf("only %d containers were stopped in %d runs", stopped.Load(), runs.Load())
	}
}
