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
	if result, err := w.answer("second"); err != nil || result.RequeueAfter != 0 {
		t.Errorf("%+v %v", result, err)
	}
	if list := w.all(); list[0].Status.Phase != recreating || list[1].Status.Phase != pending {
		t.Errorf("%+v", list)
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
		if r.Status.CompletionTime == nil || r.Status.ContainerRecreateStates[0].Phase != succeeded {
			t.Errorf("%s: %+v", r.Name, r.Status)
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
			t.Fatal(err)
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
	if list := w.all(); list[1].Status.Phase != pending || list[1].Status.ContainerRecreateStates != nil ||
		now().Status.ContainerRecreateStates[0].IsKilled {
		t.Errorf("%+v", list)
	}
	close(stops.end)
	w.settle()
	if !now().Status.ContainerRecreateStates[0].IsKilled {
		t.Errorf("the first is not recorded: %+v", now().Status)
	}
}

// CRR-100, CRR-060: a request that waits for a runtime gets its first phase, and is carried out when the
// runtime answers.
func TestAnsweredWithoutRuntime(t *testing.T) {
	w, now := quiet(t)
	w.r.runtimeOf = func(string) (Runtime, error) { return nil, runtime.ErrUnavailable }
	if err := w.rounds(2); !errors.Is(err, runtime.ErrUnavailable) || now().Status.Phase != "" {
		t.Fatalf("%v %+v", err, now().Status)
	}
	if _, err := w.answer("r"); err != nil || now().Status.Phase != pending {
		t.Errorf("%v %+v", err, now().Status)
	}
	w.r.runtimeOf = func(string) (Runtime, error) { return w, nil }
	if err := w.rounds(1); err != nil || now().Status.Phase != recreating { // CRR-094
		t.Errorf("%v %+v", err, now().Status)
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
	if result, err := w.answer("gone"); err != nil || result.RequeueAfter != 0 {
		t.Errorf("%+v %v", result, err)
	}
	stale := now()
	live := w.r.live
	w.r.live = interceptor.NewClient(w.api, interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch,
			...client.SubResourcePatchOption) error {
			return apierrors.NewConflict(schema.GroupResource{}, "r", errors.New("simulated"))
		}})
	if result, err := w.answer("r"); err != nil || result.RequeueAfter != again || now().Status.Phase != "" {
		t.Errorf("%+v %v", result, err)
	}
	w.r.live = live
	if err := w.rounds(1); err != nil {
		t.Fatal(err)
	}
	before := now()
	w.r.requests = behind{w, stale} // CRR-097
	if _, err := w.answer("r"); err != nil || now().ResourceVersion != before.ResourceVersion {
		t.Errorf("%v %+v", err, now().Status)
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
		if key.Name != "r" || time.Since(begin) != answerAfter || q.Len() != 0 {
			t.Errorf("%s after %s, %d more", key, time.Since(begin), q.Len())
		}
	})
}

// lasting gives the request a deadline, which the simulated manager needs.
func lasting(r *appsv1beta1.ContainerRecreateRequest) {
	deadline := int64(600)
	r.Spec.ActiveDeadlineSeconds = &deadline
}
