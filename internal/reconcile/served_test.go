package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

var errTimeout = errors.New("timeout")

// lateServer is an API server, with caches of it, that serves a kind later, and whose answers may be errors.
type lateServer struct {
	meta.RESTMapper
	*informertest.FakeInformers

	answer   atomic.Pointer[error] // of the REST mapper
	mu       sync.Mutex            // of failing
	failing  string                // the step that fails, once
	indexes  []string
	served   []string
	handlers int
}

func (s *lateServer) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	if err := s.answer.Load(); err != nil {
		return nil, *err
	}
	return &meta.RESTMapping{}, nil
}

// fail returns an error if the step fails now.
func (s *lateServer) fail(step string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing != step {
		return nil
	}
	s.failing = ""
	return errTimeout
}

// IndexField rejects what it has, as caches do.
func (s *lateServer) IndexField(_ context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	if err := s.fail(field); err != nil {
		return err
	}
	if slices.Contains(s.indexes, field) {
		return errors.New("indexer conflict")
	}
	s.indexes = append(s.indexes, field)
	return nil
}

func (s *lateServer) GetInformer(
	ctx context.Context, object client.Object, options ...cache.InformerGetOption,
) (cache.Informer, error) {
	if err := s.fail("fill"); err != nil {
		return nil, err
	}
	informer, err := s.FakeInformers.GetInformer(ctx, object, options...)
	return &countingInformer{informer.(*controllertest.FakeInformer), s}, err
}

// countingInformer counts the handlers that are added.
type countingInformer struct {
	*controllertest.FakeInformer
	server *lateServer
}

func (i *countingInformer) AddEventHandlerWithOptions(
	do toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	if len(i.server.served) == 0 {
		return nil, errors.New("the first events would come before the controller knows the kind")
	}
	i.server.handlers++
	return i.FakeInformer.AddEventHandlerWithOptions(do, options)
}

// newLateKind returns a LateKind of Secrets. An event is a request with the name of its object.
func newLateKind(s *lateServer) *LateKind {
	return &LateKind{
		Cache:   s,
		Mapper:  s,
		Kind:    corev1.SchemeGroupVersion.WithKind("Secret"),
		Name:    "Secret",
		Object:  &corev1.Secret{},
		Indexes: []*Index{{Object: &corev1.Secret{}, Field: "first"}, {Object: &corev1.Secret{}, Field: "second"}},
		Handler: handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []ctrl.Request {
			return []ctrl.Request{Request("", object.GetName())}
		}),
		Predicates: []predicate.Predicate{predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool {
			return e.Object.GetName() != "filtered"
		}}},
		Served: func() { s.served = append(s.served, "Secret") },
		Waiting: func(context.Context) ([]ctrl.Request, error) {
			return []ctrl.Request{Request("", "waiting")}, s.fail("list")
		},
		Without: "Nothing is made of it",
	}
}

func lacking() *error {
	err := error(&meta.NoKindMatchError{})
	return &err
}

func away() *error {
	err := errors.New("away")
	return &err
}

// ACJ-122 (part), CS-200 (part), OPS-031 (part): a kind that is served after the controller has started is
// followed from then on, once, whichever step fails at first. What waits for it is called for.
func TestAKindThatIsServedLaterIsFollowed(t *testing.T) {
	for _, failing := range []string{"", "first", "second", "fill", "list"} {
		t.Run("fails: "+failing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				s := &lateServer{FakeInformers: &informertest.FakeInformers{}, failing: failing}
				queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
				defer queue.ShutDown()
				s.answer.Store(lacking())
				if err := newLateKind(s).Start(ctx, queue); err != nil {
					t.Fatal(err)
				}
				for _, answer := range []*error{lacking(), away(), lacking()} {
					s.answer.Store(answer)
					time.Sleep(time.Minute)
					synctest.Wait()
					if len(s.indexes)+len(s.InformersByGVK)+len(s.served)+queue.Len() > 0 {
						t.Fatalf("before it is served: indexes %v, informers %v, served %v, %d requests", s.indexes, s.InformersByGVK, s.served, queue.Len())
					}
				}
				s.answer.Store(nil)
				time.Sleep(3 * ServedEvery)
				synctest.Wait()
				if want := []string{"first", "second"}; !slices.Equal(s.indexes, want) {
					t.Errorf("indexes: got %v, want %v", s.indexes, want)
				}
				if s.handlers != 1 {
					t.Errorf("handlers: got %d, want 1", s.handlers)
				}
				if len(s.served) != 1 {
					t.Errorf("served: got %v, want it once", s.served)
				}
				if s.failing != "" {
					t.Errorf("step %q was not tried", s.failing)
				}
				informer, err := s.FakeInformerFor(ctx, &corev1.Secret{})
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"filtered", "new"} {
					informer.Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}})
				}
				for _, want := range []string{"waiting", "new"} {
					if next, _ := queue.Get(); next.Name != want {
						t.Errorf("called for %s, not for %s", next.Name, want)
					}
				}
				if queue.Len() > 0 {
					t.Errorf("%d more requests", queue.Len())
				}
			})
		})
	}
}

// A kind that may not be listed stops alone: its cache is never filled, nothing is called for, and the source
// ends with the manager.
func TestAKindThatMayNotBeListedIsWaitedForAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &lateServer{FakeInformers: &informertest.FakeInformers{}}
		kind := corev1.SchemeGroupVersion.WithKind("Secret")
		s.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
			kind: controllertest.NewFakeInformer(),
		}
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer queue.ShutDown()
		if err := newLateKind(s).Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(s.served) + s.handlers; n > 0 {
			t.Errorf("before it may be listed: served %v, %d handlers", s.served, s.handlers)
		}
		if queue.Len() > 0 {
			t.Errorf("requests before it may be listed: got %d, want 0", queue.Len())
		}
		s.InformersByGVK[kind].(*controllertest.FakeInformer).Synced()
		time.Sleep(ServedEvery)
		synctest.Wait()
		if len(s.served) != 1 {
			t.Errorf("served when it may be listed: got %v, want it once", s.served)
		}
		if s.handlers != 1 {
			t.Errorf("handlers: got %d, want 1", s.handlers)
		}
		if queue.Len() != 1 {
			t.Errorf("requests: got %d, want 1", queue.Len())
		}
		stop()
	})
}

// A kind that is served at the start is watched like any other. An API server that is away does not count as
// one without the kind.
func TestAKindAtTheStart(t *testing.T) {
	for name, test := range map[string]struct {
		answer         *error
		failing        string
		served, failed bool
	}{
		"it is served":      {served: true},
		"it is not":         {answer: lacking()},
		"who knows":         {answer: away(), failed: true},
		"it is not indexed": {failing: "second", failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &lateServer{FakeInformers: &informertest.FakeInformers{}, failing: test.failing}
			s.answer.Store(test.answer)
			err := newLateKind(s).AddTo(t.Context(), ctrl.NewControllerManagedBy(nil))
			if (err != nil) != test.failed {
				t.Errorf("got error %v, want one: %t", err, test.failed)
			}
			if got := len(s.served) == 1; got != test.served {
				t.Errorf("served: got %t, want %t", got, test.served)
			}
			if got := len(s.indexes) == 2; got != test.served {
				t.Errorf("indexed: got %t, want %t", got, test.served)
			}
		})
	}
}

// The kinds of a controller are told apart by whether they are served.
func TestServedKinds(t *testing.T) {
	var s ServedKinds[string]
	s.Add("b")
	served, missing := s.Of([]string{"a", "b", "c"})
	if want := []string{"b"}; !slices.Equal(served, want) {
		t.Errorf("served: got %v, want %v", served, want)
	}
	if want := []string{"a", "c"}; !slices.Equal(missing, want) {
		t.Errorf("missing: got %v, want %v", missing, want)
	}
}

// OPS-028 (part): a replica that stood by started before a kind was served. When it leads, the kind counts as served only after its cache was shown to be
// current, as its first list may be of an API server that lags.
func TestLateKindIsServedWhenItsCacheIsCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &lateServer{FakeInformers: &informertest.FakeInformers{}}
		kind := newLateKind(s)
		current := make(chan struct{})
		kind.Current = func(context.Context) error { <-current; return nil }
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer queue.ShutDown()
		if err := kind.Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ServedEvery)
		synctest.Wait()
		if len(s.served) > 0 {
			t.Error("the kind counts as served before its cache is current")
		}
		close(current)
		synctest.Wait()
		if len(s.served) == 0 {
			t.Error("the kind does not count as served although its cache is current")
		}
		stop()
		synctest.Wait()
	})
}
