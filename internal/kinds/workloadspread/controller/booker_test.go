package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/reconcile/booking"
)

// standing are workloads as they are told, and what was asked of them.
type standing struct {
	mu      sync.Mutex
	target  func(live bool) (*workloadspread.Target, error)
	parents map[workloadspread.Reference]workloadspread.Reference
	failing map[workloadspread.Reference]error
	asked   []string
}

func (s *standing) Target(_ context.Context, _ *appsv1beta1.WorkloadSpread, live bool) (*workloadspread.Target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, fmt.Sprintf("target live=%t", live))
	return s.target(live)
}

func (s *standing) Ready() bool { return true }

func (s *standing) Known(kind schema.GroupKind) bool {
	return workloadspread.BuiltIn(kind) || kind.Group == "known.io"
}

func (s *standing) Parent(_ context.Context, _ string, of workloadspread.Reference) (workloadspread.Reference, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, "parent of "+of.Kind+" "+of.Name)
	parent, ok := s.parents[of]
	return parent, ok, s.failing[of]
}

func (s *standing) Follow(_ context.Context, target workloadspread.Reference) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, "follow "+target.Kind)
	return s.failing[target]
}

// bookServer is an API server with one WorkloadSpread, in memory.
type bookServer struct {
	client.WithWatch
	mu     sync.Mutex
	gets   int
	bodies []string
	// before and after are called around each patch, with its number; their error is the answer.
	before, after func(n int) error
}

func newBookServer(t *testing.T, spread *appsv1beta1.WorkloadSpread) *bookServer {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(appsv1beta1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	s := &bookServer{}
	stored := spread.DeepCopy()
	stored.ResourceVersion = ""
	s.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored).WithStatusSubresource(stored).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.gets++
			return c.Get(ctx, key, object, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, object client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			body, err := patch.Data(object)
			if err != nil {
				return err
			}
			s.bodies = append(s.bodies, string(body))
			n := len(s.bodies)
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
	}).Build()
	return s
}

// stored is what the server has, which is not counted.
func (s *bookServer) stored(t *testing.T) *appsv1beta1.WorkloadSpread {
	t.Helper()
	found := &appsv1beta1.WorkloadSpread{}
	s.mu.Lock()
	s.gets--
	s.mu.Unlock()
	if err := s.Get(context.Background(), types.NamespacedName{Namespace: "d", Name: "ws"}, found); err != nil {
		t.Fatal(err)
	}
	return found
}

// behind is a Booker whose informer shows the object as it was at first.
func (s *bookServer) behind(t *testing.T, workloads Workloads) (*Booker, *appsv1beta1.WorkloadSpread) {
	t.Helper()
	spread := s.stored(t)
	return NewBooker(s, s, func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return spread }, workloads, logr.Discard(), time.Now),
		spread
}

func conflicting() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "workloadspreads"}, "ws", errors.New("somebody was faster"))
}

func prepared(workloadspread.Decision) error { return nil }

const two = `{metadata: {name: ws, namespace: d, uid: u1, generation: 1}, spec: {targetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: r}, subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 3}]},
	status: {observedGeneration: 1, versionedSubsetStatuses: {other: [{name: a, replicas: 1, missingReplicas: 1}]}}}`

// WS-111, WS-112: the first attempt is made from what is known here, each further one from a fresh read; the
// booking is written once.
func TestBookerRetriesConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBookServer(t, workloadspreadtest.Read(t, two))
		b, spread := s.behind(t, &standing{})
		s.before = func(n int) error {
			if n <= 3 {
				return conflicting()
			}
			return nil
		}
		begin := time.Now()
		d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "id", Generated: true, Version: "v"}, prepared)
		if err != nil {
			t.Errorf("unexpected error: %v; %+v, %v, %d reads, %d writes", err, d, err, s.gets, len(s.bodies))
		} else if d.Subset.Name != "a" {
			t.Errorf("name of the subset: got %q, want %q; %+v, %v, %d reads, %d writes", d.Subset.Name, "a", d, err, s.gets, len(s.bodies))
		} else if !d.Booked {
			t.Errorf("booked: got false, want true; %+v, %v, %d reads, %d writes", d, err, s.gets, len(s.bodies))
		} else if s.gets != 3 {
			t.Errorf("reads: got %d, want 3; %+v, %v, %d reads, %d writes", s.gets, d, err, s.gets, len(s.bodies))
		} else if len(s.bodies) != 4 {
			t.Errorf("number of patches: got %d, want 4; %+v, %v, %d reads, %d writes", len(s.bodies), d, err, s.gets, len(s.bodies))
		}
		// 10 + 20 + 40, up to doubled by chance
		waited := time.Since(begin)
		if waited < 70*time.Millisecond {
			t.Errorf("time that it took: got %v, want at least %v", waited, 70*time.Millisecond)
		}
		if waited > 140*time.Millisecond {
			t.Errorf("time that it took: got %v, want at most %v", waited, 140*time.Millisecond)
		}
		// The next one knows what was written, although the informer is behind (WS-111).
		if d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}, prepared); err != nil {
			t.Errorf("unexpected error: %v; %+v, %v, %d reads, %d writes", err, d, err, s.gets, len(s.bodies))
		} else if d.Subset.Name != "a" {
			t.Errorf("name of the subset: got %q, want %q; %+v, %v, %d reads, %d writes", d.Subset.Name, "a", d, err, s.gets, len(s.bodies))
		} else if s.gets != 3 {
			t.Errorf("reads: got %d, want 3; %+v, %v, %d reads, %d writes", s.gets, d, err, s.gets, len(s.bodies))
		} else if len(s.bodies) != 5 {
			t.Errorf("number of patches: got %d, want 5; %+v, %v, %d reads, %d writes", len(s.bodies), d, err, s.gets, len(s.bodies))
		}
		stored := s.stored(t).Status.VersionedSubsetStatuses
		if keys := workloadspreadtest.Keys(stored["v"][0].CreatingPods); !cmp.Equal(keys, []string{"id", "p"}) {
			t.Errorf("pods being created of version v: got %q, want %q\n%+v", keys, []string{"id", "p"}, stored)
		} else if stored["v"][0].MissingReplicas != 0 {
			t.Errorf("missing replicas of version v: got %d, want 0\n%+v", stored["v"][0].MissingReplicas, stored)
		} else if stored["other"][0].Replicas != 1 {
			t.Errorf("replicas of the other version: got %d, want 1\n%+v", stored["other"][0].Replicas, stored)
		}
		if got := testutil.ToFloat64(b.writes.WithLabelValues("conflict")); got != 3 {
			t.Errorf("%v conflicts", got)
		}
	})
}

// A write is a patch of the lists of its versions, for exactly the object that was decided on; nothing else
// is sent.
func TestBookerWritesWhatItMeans(t *testing.T) {
	s := newBookServer(t, workloadspreadtest.Read(t, two))
	b, spread := s.behind(t, &standing{})
	if _, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}, prepared); err != nil {
		t.Fatal(err)
	}
	var body struct {
		Metadata map[string]string
		Status   map[string]map[string][]map[string]any
	}
	if err := json.Unmarshal([]byte(s.bodies[0]), &body); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"uid": "u1", "resourceVersion": spread.ResourceVersion}, body.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	lists := body.Status["versionedSubsetStatuses"]
	if len(body.Status) != 1 {
		t.Errorf("number of status: got %d, want 1\n%s", len(body.Status), s.bodies[0])
	}
	if len(lists) != 1 {
		t.Errorf("number of lists: got %d, want 1\n%s", len(lists), s.bodies[0])
	}
	if len(lists["v"]) != 2 {
		t.Errorf("number of version v: got %d, want 2\n%s", len(lists["v"]), s.bodies[0])
	}
}

// WS-072, WS-114: a write that was done although its answer was lost is found again, and books once.
func TestBookerFindsItsLostWrites(t *testing.T) {
	for _, pod := range []workloadspread.Creation{{Key: "p", Version: "v"}, {Key: "id", Generated: true, Version: "v"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newBookServer(t, workloadspreadtest.Read(t, two))
			b, spread := s.behind(t, &standing{})
			s.after = func(n int) error {
				if n == 1 {
					return apierrors.NewTimeoutError("no answer", 1)
				}
				return nil
			}
			d, err := b.Create(t.Context(), spread, pod, prepared)
			if err != nil {
				t.Errorf("unexpected error: %v\n%+v", err, d)
			} else if d.Subset.Name != "a" {
				t.Errorf("name of the subset: got %q, want %q\n%+v\n%v", d.Subset.Name, "a", d, err)
			} else if got := d.Placement("ws", pod).UID; got != map[bool]string{true: "id"}[pod.Generated] {
				t.Errorf("UID of the placement: got %q, want %q\n%+v\n%v", got, map[bool]string{true: "id"}[pod.Generated], d, err)
			}
			if list := s.stored(t).Status.VersionedSubsetStatuses["v"]; len(list[0].CreatingPods) != 1 {
				t.Errorf("number of pods being created of the first of the list: got %d, want 1; %+v, %d writes", len(list[0].CreatingPods), list, len(s.bodies))
			} else if list[0].MissingReplicas != 1 {
				t.Errorf("missing replicas of the first of the list: got %d, want 1; %+v, %d writes", list[0].MissingReplicas, list, len(s.bodies))
			} else if len(s.bodies) != 1 {
				t.Errorf("number of patches: got %d, want 1; %+v, %d writes", len(s.bodies), list, len(s.bodies))
			}
		})
	}
}

// WS-112: what cannot be written is an error in the end, well within the time that a pod may take; who has
// less time ends earlier, and then the outcome of the write is found out before the next.
func TestBookerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBookServer(t, workloadspreadtest.Read(t, two))
		b, spread := s.behind(t, &standing{})
		s.before = func(int) error { return conflicting() }
		begin := time.Now()
		_, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}, prepared)
		if !errors.Is(err, booking.ErrNotBooked) {
			t.Errorf("error: got %v, want %v; %v after %d writes in %s", err, booking.ErrNotBooked, err, len(s.bodies), time.Since(begin))
		} else if !apierrors.IsConflict(err) {
			t.Errorf("error: got %v, want one of kind Conflict; %v after %d writes in %s", err, err, len(s.bodies), time.Since(begin))
		} else if len(s.bodies) != 12 {
			t.Errorf("number of patches: got %d, want 12; %v after %d writes in %s", len(s.bodies), err, len(s.bodies), time.Since(begin))
		} else if time.Since(begin) > 5*time.Second {
			t.Errorf("time that it took: got %v, want at most %v; %v after %d writes in %s", time.Since(begin), 5*time.Second, err,
				len(s.bodies), time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begin = time.Now()
		if _, err := b.Create(ctx, spread, workloadspread.Creation{Key: "q", Version: "v"}, prepared); !errors.Is(err, booking.ErrNotBooked) {
			t.Errorf("error: got %v, want %v; %v in %s", err, booking.ErrNotBooked, err, time.Since(begin))
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: got %v, want %v; %v in %s", err, context.DeadlineExceeded, err, time.Since(begin))
		} else if time.Since(begin) > 50*time.Millisecond {
			t.Errorf("time that it took: got %v, want at most %v; %v in %s", time.Since(begin), 50*time.Millisecond, err, time.Since(begin))
		}
		s.before, s.gets = nil, 0
		if d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "q", Version: "v"}, prepared); err != nil {
			t.Errorf("unexpected error: %v; %+v, %v, %d reads", err, d, err, s.gets)
		} else if !d.Booked {
			t.Errorf("booked: got false, want true; %+v, %v, %d reads", d, err, s.gets)
		} else if s.gets != 1 {
			t.Errorf("reads: got %d, want 1; %+v, %v, %d reads", s.gets, d, err, s.gets)
		}
	})
}

// WS-077: before a pod is let go without a subset, the API server is asked; once for all that asked before.
func TestBookerAsksBeforeItGivesUp(t *testing.T) {
	full := strings.Replace(two, "status: {observedGeneration: 1, ", `status: {observedGeneration: 1, subsetStatuses: [], `, 1)
	full = strings.Replace(full, "{other: ", `{v: [{name: a, replicas: 2, missingReplicas: 0}, {name: b, replicas: 3, missingReplicas: 0}], other: `, 1)
	s := newBookServer(t, workloadspreadtest.Read(t, full))
	b, spread := s.behind(t, &standing{})
	d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}, prepared)
	if err != nil {
		t.Errorf("unexpected error: %v; %+v, %v, %d reads", err, d, err, s.gets)
	} else if d.Subset != nil {
		t.Errorf("subset: got %+v, want nil; %+v, %v, %d reads", d.Subset, d, err, s.gets)
	} else if d.Gone {
		t.Errorf("gone: got true, want false; %+v, %v, %d reads", d, err, s.gets)
	} else if s.gets != 1 {
		t.Errorf("reads: got %d, want 1; %+v, %v, %d reads", s.gets, d, err, s.gets)
	} else if len(s.bodies) != 0 {
		t.Errorf("number of patches: got %d, want 0; %+v, %v, %d reads", len(s.bodies), d, err, s.gets)
	} else if !strings.HasPrefix(d.Reason, "no subset has a free place") {
		t.Errorf("reason: got %q, want it to begin with %q; %+v, %v, %d reads", d.Reason, "no subset has a free place", d, err, s.gets)
	}
	freed := s.stored(t)
	freed.Status.VersionedSubsetStatuses["v"][1].MissingReplicas = 1
	if err := s.Status().Update(t.Context(), freed); err != nil {
		t.Fatal(err)
	}
	if d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}, prepared); err != nil {
		t.Errorf("unexpected error: %v; %+v, %v, %d reads", err, d, err, s.gets)
	} else if d.Subset.Name != "b" {
		t.Errorf("name of the subset: got %q, want %q; %+v, %v, %d reads", d.Subset.Name, "b", d, err, s.gets)
	} else if s.gets != 2 {
		t.Errorf("reads: got %d, want 2; %+v, %v, %d reads", s.gets, d, err, s.gets)
	}
}

// WS-133: replicas that cannot be told let no pod into a share of them, and refuse none.
func TestBookerWithoutReplicas(t *testing.T) {
	for name, target := range map[string]func(bool) (*workloadspread.Target, error){
		"an error": func(bool) (*workloadspread.Target, error) { return nil, errors.New("forbidden") },
		"no path": func(bool) (*workloadspread.Target, error) {
			return &workloadspread.Target{Exists: true, DesiredError: errors.New("no path")}, nil
		},
	} {
		s := newBookServer(t, workloadspreadtest.Read(t, strings.ReplaceAll(two, "maxReplicas: 2", "maxReplicas: 50%")))
		b, spread := s.behind(t, &standing{target: target})
		if d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}, prepared); err != nil {
			t.Errorf("%s: unexpected error: %v\n%+v", name, err, d)
		} else if d.Subset.Name != "b" {
			t.Errorf("%s: name of the subset: got %q, want %q\n%+v\n%v", name, d.Subset.Name, "b", d, err)
		}
	}
}

// WS-113, WS-115: a WorkloadSpread that is gone, or going, has no pods; what was kept of it is not used for
// another of its name.
func TestBookerOfWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBookServer(t, workloadspreadtest.Read(t, two))
		b, spread := s.behind(t, &standing{})
		if _, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}, prepared); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), s.stored(t)); err != nil {
			t.Fatal(err)
		}
		if d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "q", Version: "v"}, prepared); err != nil {
			t.Errorf("unexpected error: %v\n%+v", err, d)
		} else if !d.Gone {
			t.Errorf("gone: got false, want true\n%+v\n%v", d, err)
		} else if d.Subset != nil {
			t.Errorf("subset: got %+v, want nil\n%+v\n%v", d.Subset, d, err)
		}
		other := workloadspreadtest.Read(t, strings.ReplaceAll(two, "u1", "u2"))
		other.ResourceVersion, other.Status = "", appsv1beta1.WorkloadSpreadStatus{}
		if err := s.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		// the old one was matched
		if d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "q", Version: "v"}, prepared); err != nil {
			t.Errorf("unexpected error: %v\n%+v", err, d)
		} else if !d.Gone {
			t.Errorf("gone: got false, want true\n%+v\n%v", d, err)
		}
		if d, err := b.Create(t.Context(), s.stored(t), workloadspread.Creation{Key: "q", Version: "v"}, prepared); err != nil {
			t.Errorf("unexpected error: %v\n%+v", err, d)
		} else if got := s.stored(t).Status.VersionedSubsetStatuses["v"][0].MissingReplicas; got != 1 {
			t.Errorf("missing replicas of version v: got %d, want 1\n%+v\n%v", got, d, err)
		}
	})
	going := workloadspreadtest.Read(t, two)
	going.DeletionTimestamp, going.Finalizers = new(metav1.Now()), []string{"x/y"}
	s := newBookServer(t, going)
	b, spread := s.behind(t, &standing{})
	if d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}, prepared); err != nil {
		t.Errorf("unexpected error: %v\n%+v", err, d)
	} else if !d.Gone {
		t.Errorf("gone: got false, want true\n%+v\n%v", d, err)
	}
	if d, err := b.Delete(t.Context(), spread, workloadspread.Deletion{Name: "p", Version: "v", Subset: "a"}); err != nil ||
		d.Booked { // WS-102
		t.Errorf("deletion: got %+v and error %v, want nothing booked", d, err)
	}
}

// WS-094: what cannot be done to the pod refuses it, and is not booked; the others of the same write are.
func TestBookerPreparesFirst(t *testing.T) {
	s := newBookServer(t, workloadspreadtest.Read(t, two))
	b, spread := s.behind(t, &standing{})
	broken := errors.New("a bad patch")
	if _, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"},
		func(workloadspread.Decision) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error: got %v, want %v\n%v", err, broken, s.bodies)
	} else if len(s.bodies) != 0 {
		t.Errorf("number of patches: got %d, want 0\n%v\n%v", len(s.bodies), err, s.bodies)
	}
}

// WS-056, WS-060, WS-064, WS-075: nothing is read or written where nothing is counted; a StatefulSet that
// cannot be read refuses the pod.
func TestBookerWithoutCounters(t *testing.T) {
	for name, test := range map[string]struct {
		subsets, kind string
		want          string
		target        error
	}{
		"one without limit":            {"{name: only}", "ReplicaSet", "only", nil},
		"no limit reached":             {"{name: a, maxReplicas: 0}, {name: b}", "ReplicaSet", "b", nil},
		"StatefulSet":                  {"{name: a, maxReplicas: 2}, {name: b, maxReplicas: 2}", "StatefulSet", "b", nil},
		"StatefulSet, no place":        {"{name: a, maxReplicas: 2}", "StatefulSet", "", nil},
		"StatefulSet, not readable":    {"{name: a, maxReplicas: 2}", "StatefulSet", "error", errors.New("no answer")},
		"StatefulSet, only one subset": {"{name: only}", "StatefulSet", "only", errors.New("no answer")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBookServer(t, workloadspreadtest.Read(t,
				fmt.Sprintf(`{metadata: {name: ws, namespace: d, uid: u1}, spec: {targetRef: {apiVersion: apps/v1, kind: %s, name: s}, subsets: [%s]}}`,
					test.kind, test.subsets)))
			b, spread := s.behind(t, &standing{target: func(bool) (*workloadspread.Target, error) { return &workloadspread.Target{}, test.target }})
			d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "s-2", Version: "v"}, prepared)
			got := ""
			switch {
			case err != nil:
				got = "error"
			case d.Subset != nil:
				got = d.Subset.Name
			}
			if got != test.want {
				t.Errorf("got %q, want %q; %s, %v, %d reads, %d writes", got, test.want, got, err, s.gets, len(s.bodies))
			}
			if s.gets+len(s.bodies) != 0 {
				t.Errorf("number of reads and writes: got %d, want 0; %s, %v, %d reads, %d writes", s.gets+len(s.bodies), got, err, s.gets, len(s.bodies))
			}
			// WS-102
			if d, err := b.Delete(t.Context(), spread, workloadspread.Deletion{Name: "s-2", Version: "v", Subset: "b"}); err != nil {
				t.Errorf("unexpected error: %v\n%+v", err, d)
			} else if d.Booked {
				t.Errorf("booked: got true, want false\n%+v\n%v", d, err)
			} else if s.gets+len(s.bodies) != 0 {
				t.Errorf("number of reads and writes: got %d, want 0\n%+v\n%v", s.gets+len(s.bodies), d, err)
			}
		})
	}
}

// WS-103, WS-106, WS-114: two managers book creations and deletions at the same time; each subset has what it
// may, and those that wait share writes.
func TestBookersOfTwoManagers(t *testing.T) {
	const many = `{metadata: {name: ws, namespace: d, uid: u1, generation: 1}, spec: {targetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: r}, subsets: [{name: a, maxReplicas: 70}, {name: b, maxReplicas: 50}, {name: c}]},
		status: {observedGeneration: 1}}`
	s := newBookServer(t, workloadspreadtest.Read(t, many))
	s.before = func(int) error { time.Sleep(time.Millisecond); return nil } // as a network takes
	var bookers [2]*Booker
	var spread *appsv1beta1.WorkloadSpread
	for i := range bookers {
		bookers[i], spread = s.behind(t, &standing{})
	}
	var mu sync.Mutex
	put, all := map[string]int{}, sync.WaitGroup{}
	for i := range 200 {
		all.Go(func() {
			d, err := bookers[i%2].Create(t.Context(), spread, workloadspread.Creation{Key: fmt.Sprintf("id-%d", i), Generated: true, Version: "v"},
				prepared)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || d.Subset == nil {
				t.Errorf("creation: got %+v and error %v, want a subset", d, err)
				return
			}
			put[d.Subset.Name]++
		})
	}
	all.Wait()
	if diff := cmp.Diff(map[string]int{"a": 70, "b": 50, "c": 80}, put); diff != "" {
		t.Errorf("put (-want +got):\n%s", diff)
	}
	t.Logf("%d writes, %v and %v of them conflicts", len(s.bodies), testutil.ToFloat64(bookers[0].writes.WithLabelValues("conflict")),
		testutil.ToFloat64(bookers[1].writes.WithLabelValues("conflict")))
	if len(s.bodies) > 60 {
		t.Errorf("%d writes for 120 bookings: they are not shared", len(s.bodies))
	}
	for i := range 20 {
		all.Go(func() {
			if d, err := bookers[i%2].Delete(t.Context(), spread, workloadspread.Deletion{Name: fmt.Sprintf("p-%d", i), Version: "v",
				Subset: "a"}); err != nil {
				t.Errorf("unexpected error: %v\n%+v", err, d)
			} else if !d.Booked {
				t.Errorf("booked: got false, want true\n%+v\n%v", d, err)
			}
		})
	}
	all.Wait()
	a := s.stored(t).Status.VersionedSubsetStatuses["v"][0]
	if a.MissingReplicas != 20 {
		t.Errorf("missing replicas: got %d, want 20", a.MissingReplicas)
	}
	if len(a.CreatingPods) != 70 {
		t.Errorf("number of pods being created: got %d, want 70", len(a.CreatingPods))
	}
	if len(a.DeletingPods) != 20 {
		t.Errorf("number of pods being deleted: got %d, want 20", len(a.DeletingPods))
	}
}
