package restart

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// slow is a runtime whose stops last until the test ends them.
type slow struct {
	*world
	begun, end chan struct{}
}

func (s slow) Stop(ctx context.Context, id string, grace time.Duration) error {
	close(s.begun)
	<-s.end
	return s.world.Stop(ctx, id, grace)
}

func (w *world) answer(name string) (reconcile.Result, error) {
	return answerer{w.r}.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: name}})
}

// CRR-060, CRR-093, CRR-164: a request that is created while a container of its pod takes long to end gets
// its first phase nevertheless, and is carried out later.
func TestAnsweredBehindASlowStop(t *testing.T) {
	w, _ := quiet(t, lasting)
	stops := slow{w, make(chan struct{}), make(chan struct{})}
	w.r.runtimeOf = func(string) (Runtime, error) { return stops, nil }
	worked := make(chan error, 1)
	go func() { worked <- w.rounds(2) }()
	<-stops.begun
	second := request(states(), force, lasting, func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Name, r.UID, r.Status.Phase = "second",
			"2", ""
	})
	if err := w.api.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	result, err := w.answer("second")
	if err != nil {
		t.Errorf("answering the second request: %v", err)
	}
	if result.RequeueAfter != 0 {
		t.Errorf("the second request is answered again after %s, want never", result.RequeueAfter)
	}
	list := w.all()
	if phase := list[0].Status.Phase; phase != recreating {
		t.Errorf("phase of the first request: got %q, want %s", phase, recreating)
	}
	if phase := list[1].Status.Phase; phase != pending {
		t.Errorf("phase of the second request: got %q, want %s", phase, pending)
	}
	close(stops.end)
	if err := <-worked; err != nil {
		t.Fatal(err)
	}
	w.r.runtimeOf = func(string) (Runtime, error) { return w, nil }
	for range 40 {
		w.sync()
		_ = w.rounds(1)
		w.kubelet()
		w.manager()
		w.clock.Step(time.Second)
	}
	for _, r := range w.all() {
		if r.Status.CompletionTime == nil {
			t.Errorf("request %s is not completed: %+v", r.Name, r.Status)
		}
		if state := r.Status.ContainerRecreateStates[0]; state.Phase != succeeded {
			t.Errorf("container of request %s: got %+v, want it %s", r.Name, state, succeeded)
		}
	}
}

// CRR-091: while a container is being stopped for one request, another request for the same pod only gets its
// phase and waits, also if it is for another container and after any number of passes.
// TestRestartsOfOneTenantDoNotHoldUpThoseOfAnother is about other pods.
func TestRequestsOfOnePodTakeTurns(t *testing.T) {
	w, now := quiet(t, lasting)
	stops := slow{w, make(chan struct{}), make(chan struct{})}
	w.r.runtimeOf = func(string) (Runtime, error) { return stops, nil }
	look := func() {
		t.Helper()
		w.sync()
		if _, err := w.r.Reconcile(t.Context(),
			reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "p"}}); err != nil {
			t.Fatalf("a pass over the pod: %v", err)
		}
	}
	look()
	look()
	<-stops.begun
	second := request(states(), force, lasting, func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Name, r.UID, r.Status.Phase = "second", "2", ""
		r.Spec.Containers = r.Spec.Containers[1:]
	})
	if err := w.api.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		look() // a second stop would close a channel that is closed
	}
	if _, err := w.answer("second"); err != nil {
		t.Fatal(err)
	}
	list := w.all()
	if phase := list[1].Status.Phase; phase != pending {
		t.Errorf("phase of the second request: got %q, want %s", phase, pending)
	}
	if states := list[1].Status.ContainerRecreateStates; states != nil {
		t.Errorf("containers of the second request: got %+v, want none", states)
	}
	if state := now().Status.ContainerRecreateStates[0]; state.IsKilled {
		t.Errorf("the container of the first request is killed before its stop has ended: %+v", state)
	}
	close(stops.end)
	w.settle()
	if !now().Status.ContainerRecreateStates[0].IsKilled {
		t.Errorf("the stop for the first request is not recorded: %+v", now().Status)
	}
}

// CRR-100, CRR-060: a request that waits for a runtime gets its first phase, and is carried out when the
// runtime answers.
func TestAnsweredWithoutRuntime(t *testing.T) {
	w, now := quiet(t)
	w.r.runtimeOf = func(string) (Runtime, error) { return nil, runtime.ErrUnavailable }
	if err := w.rounds(2); !errors.Is(err, runtime.ErrUnavailable) {
		t.Fatalf("rounds without a runtime: got %v, want %v", err, runtime.ErrUnavailable)
	}
	if phase := now().Status.Phase; phase != "" {
		t.Fatalf("phase before the answer: got %q, want none", phase)
	}
	if _, err := w.answer("r"); err != nil {
		t.Errorf("answering the request: %v", err)
	}
	if phase := now().Status.Phase; phase != pending {
		t.Errorf("phase after the answer: got %q, want %s", phase, pending)
	}
	w.r.runtimeOf = func(string) (Runtime, error) { return w, nil }
	if err := w.rounds(1); err != nil { // CRR-094
		t.Errorf("a round with a runtime: %v", err)
	}
	if phase := now().Status.Phase; phase != recreating {
		t.Errorf("phase after a round with a runtime: got %q, want %s", phase, recreating)
	}
}

// CRR-067, CRR-096, CRR-141: nothing is written to a request that has a phase, or that is completed; a
// conflict is retried.
func TestAnswersOnlyWhatIsOpen(t *testing.T) {
	for name, change := range map[string]change{
		"answered":   func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Phase = recreating },
		"completed":  func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.CompletionTime = &metav1.Time{Time: epoch} },
		"not active": func(r *appsv1beta1.ContainerRecreateRequest) { delete(r.Labels, pub.RecreateActive) },
		"deleted": func(r *appsv1beta1.ContainerRecreateRequest) {
			r.DeletionTimestamp, r.Finalizers = &metav1.Time{Time: epoch}, []string{"other/held"}
		},
	} {
		r := request(states(), func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Phase = "" }, change)
		if unanswered(r) {
			t.Errorf("%s: is to be answered", name)
		}
	}
	w, now := quiet(t)
	result, err := w.answer("gone")
	if err != nil {
		t.Errorf("answering a request that is gone: %v", err)
	}
	if result.RequeueAfter != 0 {
		t.Errorf("a request that is gone is answered again after %s, want never", result.RequeueAfter)
	}
	stale := now()
	live := w.r.live
	w.r.live = interceptor.NewClient(w.api, interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
			...client.SubResourcePatchOption) error {
			return apierrors.NewConflict(schema.GroupResource{}, "r", errors.New("simulated"))
		}})
	result, err = w.answer("r")
	if err != nil {
		t.Errorf("an answer that conflicts: %v", err)
	}
	if result.RequeueAfter != again {
		t.Errorf("an answer that conflicts is tried again after %s, want %s", result.RequeueAfter, again)
	}
	if phase := now().Status.Phase; phase != "" {
		t.Errorf("phase after an answer that conflicts: got %q, want none", phase)
	}
	w.r.live = live
	if err := w.rounds(1); err != nil {
		t.Fatal(err)
	}
	before := now()
	w.r.requests = behind{w, stale} // CRR-097
	if _, err := w.answer("r"); err != nil {
		t.Errorf("answering a request that has its phase: %v", err)
	}
	if version := now().ResourceVersion; version != before.ResourceVersion {
		t.Errorf("a request that has its phase was written: version %s, want %s",
			version, before.ResourceVersion)
	}
}

// behind is a cache that has an older version of the request.
type behind struct {
	client.Reader
	request *appsv1beta1.ContainerRecreateRequest
}

func (b behind) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	b.request.DeepCopyInto(object.(*appsv1beta1.ContainerRecreateRequest))
	return nil
}

// CRR-093: a request that gets its phase in time costs nothing more. The others are handled long before the
// manager fails them, also after a restart of the daemon, when all are new to the cache.
func TestAnswersComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		begin := time.Now()
		fresh := request(func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Phase = "" })
		events := answerer{}.later()
		events.Create(t.Context(), event.CreateEvent{Object: request()}, q)
		events.Update(t.Context(), event.UpdateEvent{ObjectOld: fresh, ObjectNew: request()}, q)
		events.Create(t.Context(), event.CreateEvent{Object: fresh}, q)
		events.Update(t.Context(), event.UpdateEvent{ObjectOld: fresh, ObjectNew: fresh}, q)
		key, _ := q.Get()
		if key.Name != "r" {
			t.Errorf("the request that is answered: got %s, want r", key)
		}
		if after := time.Since(begin); after != answerAfter {
			t.Errorf("the request is answered after %s, want %s", after, answerAfter)
		}
		if q.Len() != 0 {
			t.Errorf("more requests that are answered: got %d, want 0", q.Len())
		}
	})
}

// lasting gives the request a deadline, which the simulated manager needs.
func lasting(r *appsv1beta1.ContainerRecreateRequest) {
	deadline := int64(600)
	r.Spec.ActiveDeadlineSeconds = &deadline
}
