package booking

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Show is an object with so many free seats; the others have the names of who booked them.
type Show struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            ShowStatus `json:"status,omitempty"`
}

type ShowStatus struct {
	Free    int             `json:"free"`
	Seats   map[string]bool `json:"seats,omitempty"`
	Counted int             `json:"counted,omitempty"`
}

func (s *Show) DeepCopyObject() runtime.Object {
	copied := *s
	s.DeepCopyInto(&copied.ObjectMeta)
	copied.Status.Seats = maps.Clone(s.Status.Seats)
	return &copied
}

var showName = types.NamespacedName{Namespace: "d", Name: "show"}

func show(free int) *Show {
	return &Show{ObjectMeta: metav1.ObjectMeta{Namespace: showName.Namespace, Name: showName.Name, UID: "u1"},
		Status: ShowStatus{Free: free}}
}

// sale is the draft of a Show.
type sale struct {
	free  int
	taken map[string]bool
	sold  map[string]bool
}

var errSoldOut = errors.New("no seat is free")

// book is how the tests decide: as kinds do whose places may be given back by others.
func book(name string) func(*sale, time.Duration) error {
	return func(s *sale, age time.Duration) error {
		switch {
		case s.taken[name] || s.sold[name]:
			return nil
		case s.free <= 0 && age > 0:
			return ErrStale
		case s.free <= 0:
			return errSoldOut
		}
		s.free--
		s.sold[name] = true
		return nil
	}
}

type shows = StatusBatcher[Show, *Show, *sale]

// server is an API server with one Show, in memory.
type server struct {
	client.WithWatch
	t *testing.T

	mu           sync.Mutex
	reads, sends int
	// before and after are called around each patch, with its number; their error is the answer.
	before, after func(n int) error
}

func serve(t *testing.T, object *Show) *server {
	t.Helper()
	scheme, version := runtime.NewScheme(), schema.GroupVersion{Group: "test.io", Version: "v1"}
	scheme.AddKnownTypes(version, &Show{})
	metav1.AddToGroupVersion(scheme, version)
	s := &server{t: t}
	s.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).WithStatusSubresource(object).Build(),
		interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				s.mu.Lock()
				s.reads++
				s.mu.Unlock()
				if err := ctx.Err(); err != nil {
					return err
				}
				return c.Get(ctx, key, object, options...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, object client.Object, patch client.Patch,
				options ...client.SubResourcePatchOption) error {
				s.mu.Lock()
				s.sends++
				n := s.sends
				s.mu.Unlock()
				if s.before != nil {
					if err := s.before(n); err != nil {
						return err
					}
				}
				if err := c.SubResource(subresource).Patch(ctx, object, patch, options...); err != nil {
					return err
				}
				if s.after != nil {
					return s.after(n)
				}
				return nil
			},
		})
	return s
}

// stored is what the server has, which is not counted as a read.
func (s *server) stored() *Show {
	s.t.Helper()
	found := &Show{}
	if err := s.Get(context.Background(), showName, found); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.reads--
	s.mu.Unlock()
	return found
}

// change is made by another replica.
func (s *server) change(change func(*ShowStatus)) {
	s.t.Helper()
	found := s.stored()
	change(&found.Status)
	if err := s.Status().Update(context.Background(), found); err != nil {
		s.t.Fatal(err)
	}
}

// behind is a desk whose informer shows the object as it is now, for ever. Tests change its options before
// they use it.
func (s *server) behind() (*shows, *Show) {
	cached := s.stored()
	return New(Options[Show, *Show, *sale]{Client: s, Live: s, Cached: func(types.NamespacedName) *Show { return cached }, Now: time.Now,
		Begin: func(_ context.Context, object *Show) *sale {
			return &sale{free: object.Status.Free, taken: object.Status.Seats, sold: map[string]bool{}}
		},
		Changes: func(s *sale) map[string]any {
			if len(s.sold) == 0 {
				return nil
			}
			return map[string]any{"free": s.free, "seats": s.sold}
		},
		Backoff: wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 4},
		Writes:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "writes_total"}, []string{"result"})}), cached
}

func conflict() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "shows"}, "show", errors.New("somebody was faster"))
}

// counting is what a controller writes.
func counting(n int) func(*Show) ([]byte, error) {
	return func(newest *Show) ([]byte, error) {
		return json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": newest.ResourceVersion, "uid": newest.UID},
			"status": map[string]any{"counted": n}})
	}
}
