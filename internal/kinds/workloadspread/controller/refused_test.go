package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/reconcile/booking"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestRefusedPodsDoNotUseUpTheirSubsets: a quota of the namespace refuses the pods of a workload again and
// again, each under another name, and then lets them in: they come to the first subset, and not without rules
// because the refused ones have its place still (WS-077, WS-152). The manager that is told of a refusal is
// not the one that booked, and its cache is behind.
func TestRefusedPodsDoNotUseUpTheirSubsets(t *testing.T) {
	for _, most := range []string{"2", "50%"} {
		t.Run(most, func(t *testing.T) {
			s := newBookServer(t, workloadspreadtest.Read(t, strings.NewReplacer("maxReplicas: 2", "maxReplicas: "+most, "maxReplicas: 3",
				"maxReplicas: "+most).Replace(two)))
			workloads := &standing{target: func(bool) (*workloadspread.Target, error) {
				return &workloadspread.Target{Exists: true, Desired: 4}, nil
			}}
			webhook, spread := s.behind(t, workloads)
			leader, _ := s.behind(t, workloads)
			for i := range 20 {
				pod := workloadspread.Creation{Key: fmt.Sprintf("web-%d", i), Version: "v"}
				d, err := webhook.Create(t.Context(), spread, pod, prepared)
				if err != nil {
					t.Fatalf("unexpected error: %v; pod %d: %+v, %v", err, i, d, err)
				} else if d.Subset == nil {
					t.Fatalf("subset: got nil, want a value; pod %d: %+v, %v", i, d, err)
				} else if d.Subset.Name != "a" {
					t.Fatalf("name: got %q, want %q; pod %d: %+v, %v", d.Subset.Name, "a", i, d, err)
				}
				if err := leader.Release(t.Context(), spread, pod); err != nil {
					t.Fatal(err)
				}
			}
			list := s.stored(t).Status.VersionedSubsetStatuses["v"]
			if got := workloadspreadtest.Bookings(list); got != 0 {
				t.Errorf("workloadspreadtest.Bookings(list): got %d, want 0\n%+v", got, list)
			} else if list[0].MissingReplicas != 2 {
				t.Errorf("list[0].MissingReplicas: got %d, want 2\n%+v", list[0].MissingReplicas, list)
			}
		})
	}
}

// WS-152: what is not booked, or not any more, is not given back: nothing is written, and no place becomes
// free.
func TestNothingIsGivenBackTwice(t *testing.T) {
	s := newBookServer(t, workloadspreadtest.Read(t, two))
	b, spread := s.behind(t, &standing{})
	for _, key := range []string{"p", "q"} {
		if _, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: key, Version: "v"}, prepared); err != nil {
			t.Fatal(err)
		}
	}
	// it came after all, and goes again
	if _, err := b.Delete(t.Context(), spread, workloadspread.Deletion{Name: "q", Version: "v", Subset: "a"}); err != nil {
		t.Fatal(err)
	}
	writes := len(s.bodies)
	for _, pod := range []workloadspread.Creation{{Key: "other", Version: "v"}, {Key: "p", Version: "another"}, {Key: "q", Version: "v"}} {
		if err := b.Release(t.Context(), spread, pod); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.bodies) != writes {
		t.Errorf("written: %v", s.bodies[writes:])
	}
	for range 2 {
		if err := b.Release(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}); err != nil {
			t.Fatal(err)
		}
	}
	a := s.stored(t).Status.VersionedSubsetStatuses["v"][0]
	if len(s.bodies) != writes+1 {
		t.Errorf("len(s.bodies): got %d, want %d; %d writes, %+v", len(s.bodies), writes+1, len(s.bodies)-writes, a)
	}
	if a.MissingReplicas != 2 {
		t.Errorf("missing replicas: got %d, want 2; %d writes, %+v", a.MissingReplicas, len(s.bodies)-writes, a)
	}
	if got := workloadspreadtest.Keys(a.CreatingPods); !cmp.Equal(got, []string{"q"}) {
		t.Errorf("workloadspreadtest.Keys(a.CreatingPods): got %q, want %q; %d writes, %+v", got, []string{"q"}, len(s.bodies)-writes, a)
	}
	for name, spec := range map[string]string{"a single subset": "{targetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: r}, subsets: [{name: a}]}",
		"a StatefulSet": "{targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: r}, subsets: [{name: a, maxReplicas: 1}]}"} {
		s := newBookServer(t, workloadspreadtest.Read(t, `{metadata: {name: ws, namespace: d, uid: u1}, spec: `+spec+`}`))
		b, spread := s.behind(t, &standing{})
		if err := b.Release(t.Context(), spread, workloadspread.Creation{Key: "p", Version: "v"}); err != nil {
			t.Errorf("%s: unexpected error: %v; %v, %d reads, %d writes", name, err, err, s.gets, len(s.bodies))
		} else if s.gets+len(s.bodies) != 0 {
			t.Errorf("%s: s.gets+len(s.bodies): got %d, want 0; %v, %d reads, %d writes", name, s.gets+len(s.bodies), err, s.gets, len(s.bodies))
		}
	}
}

// WS-152: a booking that is still being written when its request ends is given back all the same.
func TestABookingThatIsUnderWayIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBookServer(t, workloadspreadtest.Read(t, two))
		b, spread := s.behind(t, &standing{})
		s.after = func(n int) error {
			if n == 1 {
				return apierrors.NewTimeoutError("no answer", 1)
			}
			return nil
		}
		pod := workloadspread.Creation{Key: "id", Generated: true, Version: "v"}
		s.before = func(n int) error {
			if n > 1 {
				return conflicting()
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := b.Create(ctx, spread, pod, prepared); !errors.Is(err, booking.ErrNotBooked) {
			t.Fatalf("err: got %v, want %v", err, booking.ErrNotBooked)
		}
		if n := workloadspreadtest.Bookings(s.stored(t).Status.VersionedSubsetStatuses["v"]); n != 1 {
			t.Fatalf("%d bookings", n)
		}
		s.before = nil
		if err := b.Release(t.Context(), spread, pod); err != nil {
			t.Errorf("b.Release(t.Context(), spread, pod): unexpected error: %v\n%+v", err, s.stored(t).Status)
		} else if got := workloadspreadtest.Bookings(s.stored(t).Status.VersionedSubsetStatuses["v"]); got != 0 {
			t.Errorf("workloadspreadtest.Bookings(s.stored(t).Status.VersionedSubsetStatuses[\"v\"]): got %d, want 0\n%v\n%+v", got, err,
				s.stored(t).Status)
		}
	})
}

// TestWhichAnswersRefuse: only those that leave no doubt: a request that timed out may have created the pod,
// and so may an earlier one of that name.
func TestWhichAnswersRefuse(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"none":               {nil, false},
		"a quota, a policy":  {fmt.Errorf("creating: %w", apierrors.NewForbidden(pods, "p", errors.New("exceeded quota"))), true},
		"invalid":            {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), true},
		"a webhook":          {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 422}}, true},
		"too many requests":  {apierrors.NewTooManyRequests("later", 1), true},
		"the name is taken":  {apierrors.NewAlreadyExists(pods, "p"), false},
		"a conflict":         {apierrors.NewConflict(pods, "p", errors.New("quota")), false},
		"a timeout":          {apierrors.NewTimeoutError("no answer", 1), false},
		"an internal error":  {apierrors.NewInternalError(errors.New("etcd")), false},
		"no answer":          {errors.New("connection reset"), false},
		"a timeout of a 4xx": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 408}}, false},
	} {
		if got := Refuses(test.err); got != test.want {
			t.Errorf("%s: Refuses(test.err): got %t, want %t", name, got, test.want)
		}
	}
}

// TestWhoIsToldOfARefusal: the place is that of the WorkloadSpread that the pod belongs to, in the list of
// its version.
func TestWhoIsToldOfARefusal(t *testing.T) {
	s := newBookServer(t, workloadspreadtest.Read(t, two))
	workloads := &standing{parents: map[workloadspread.Reference]workloadspread.Reference{}}
	index := &Index{}
	spread := s.stored(t)
	index.Set(spread)
	w := newWatch(nil, index, NewBooker(s, s, index.Get, workloads, logr.Discard(), time.Now), NewMatcher(index, workloads, logr.Discard()), nil)
	w.Absent()
	refused := func(name, version, controller string) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name,
			Labels: map[string]string{"pod-template-hash": version},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: controller, UID: "r",
				Controller: new(true)}}}}
		return w.Refused(t.Context(), pod, versioned)
	}
	for _, name := range []string{"p", "q"} {
		if _, err := w.Booker.Create(t.Context(), spread, workloadspread.Creation{Key: name, Version: "v"}, prepared); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{refused("", "v", "r"), refused("p", "v", "other"), refused("p", "other", "r"), refused("p", "v", "r")} {
		if err != nil {
			t.Errorf("a refusal: %v", err)
		}
	}
	if a := s.stored(t).Status.VersionedSubsetStatuses["v"][0]; !cmp.Equal(workloadspreadtest.Keys(a.CreatingPods), []string{"q"}) {
		t.Errorf("bookings of subset a: got %+v, want q alone", a)
	}
}

// TestARefusedPodIsNotTriedAtEveryEvent: a pod whose deletion cost cannot be written, or that cannot be
// deleted, is tried again after a second and then less and less often, while pods come and go and each event
// calls for a pass (WS-166, WS-175).
func TestARefusedPodIsNotTriedAtEveryEvent(t *testing.T) {
	for name, test := range map[string]struct {
		setup func(*testing.T) *simulated
		verb  string
	}{
		"cost": {func(t *testing.T) *simulated {
			s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 20, workloadspreadtest.Zone("a", "b", "c"))), 3)
			rests(t, s)
			s.Edit(func(spread *appsv1beta1.WorkloadSpread) {
				spread.Spec.Subsets = append(spread.Spec.Subsets, workloadspreadtest.Subset("b", nil))
			})
			return s
		}, "patch"},
		"given up": {stuck, "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.setup(t)
			tried := map[string]int{}
			s.Refused = func(w simulation.Write) bool {
				if w.Key.Kind != "Pod" || w.Verb != test.verb {
					return false
				}
				tried[w.Key.Name]++
				return true
			}
			for range 300 {
				s.Queue.Add()
				s.Events(1 << 20)
				s.Manage()
				s.Pass(100 * time.Millisecond)
			}
			if len(tried) == 0 {
				t.Error("nothing was tried")
			}
			for pod, n := range tried {
				if n < 4 {
					t.Errorf("n: got %d, want at least 4; pod %s was tried %d times in 30 s", n, pod, n)
				}
				if n > 6 {
					t.Errorf("n: got %d, want at most 6; pod %s was tried %d times in 30 s", n, pod, n)
				}
			}
			s.Refused = nil
			rests(t, s)
		})
	}
}

// unreadable is a reader that cannot read one pod.
type unreadable struct {
	simReader
	pod   string
	tried *int
}

func (u unreadable) Whole(ctx context.Context, name types.NamespacedName) ([]byte, error) {
	if name.Name == u.pod {
		*u.tried++
		return nil, errors.New("no answer")
	}
	return u.simReader.Whole(ctx, name)
}

// TestOnePodThatCannotBeReadDoesNotFreezeTheStatus: the others are adopted and counted, bookings expire, and
// the pod is not read at every event (WS-141, WS-166).
func TestOnePodThatCannotBeReadDoesNotFreezeTheStatus(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 20, workloadspreadtest.Zone("a", "b", "c"))), 3)
	tried := 0
	s.pass.Reader = unreadable{s.reader, "web-v1-002", &tried}
	for range 300 {
		s.Queue.Add()
		s.Events(1 << 20)
		s.Manage()
		s.Pass(100 * time.Millisecond)
	}
	if a := workloadspread.SubsetStatus(s.spread().Status.SubsetStatuses, "a"); a == nil {
		t.Errorf("a: got nil, want a value; %+v; it was read %d times in 30 s", a, tried)
	} else if a.Replicas != 2 {
		t.Errorf("replicas: got %d, want 2; %+v; it was read %d times in 30 s", a.Replicas, a, tried)
	} else if tried < 4 {
		t.Errorf("tried: got %d, want at least 4; %+v; it was read %d times in 30 s", tried, a, tried)
	} else if tried > 6 {
		t.Errorf("tried: got %d, want at most 6; %+v; it was read %d times in 30 s", tried, a, tried)
	}
	s.pass.Reader = s.reader
	rests(t, s)
	if a := workloadspread.SubsetStatus(s.spread().Status.SubsetStatuses, "a"); a.Replicas != 3 {
		t.Errorf("replicas: got %d, want 3\n%+v", a.Replicas, a)
	}
}

// TestAPodThatMayNotBeAdoptedKeepsItsPlace: a policy refuses that a pod is annotated which was there before
// the WorkloadSpread. It stays counted in the subset that its node is in: its place is not free for others
// between two attempts, and the status is not written back and forth (WS-143, WS-145, WS-178).
func TestAPodThatMayNotBeAdoptedKeepsItsPlace(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 3, workloadspreadtest.Zone("a", "b", "c")),
		workloadspreadtest.Subset("b", nil)), 3)
	refused, written := 0, 0
	s.Refused = func(w simulation.Write) bool {
		if w.Key == spreadKey {
			written++
		}
		if w.Key != podKey("web-v1-002") {
			return false
		}
		refused++
		return true
	}
	for i := range 1200 {
		s.Queue.Add()
		s.Events(1 << 20)
		s.Manage()
		s.Pass(100 * time.Millisecond)
		if i == 100 {
			written = 0
		}
		if a := workloadspread.SubsetStatus(s.spread().Status.VersionedSubsetStatuses["v1"], "a"); i > 10 &&
			(a == nil || a.MissingReplicas != 0) {
			t.Fatalf("after %d attempts a place is free: %+v", refused, a)
		}
	}
	if refused < 4 {
		t.Errorf("refused: got %d, want at least 4", refused)
	}
	if refused > 10 {
		t.Errorf("refused: got %d, want at most 10", refused)
	}
	if written != 0 {
		t.Errorf("written: got %d, want 0", written)
	}
	s.Refused = nil
	rests(t, s)
	if pod := s.Get(podKey("web-v1-002")); pod.GetAnnotations()[pub.MatchedWorkloadSpread] == "" {
		t.Errorf("pod.GetAnnotations()[pub.MatchedWorkloadSpread]: got nothing, want some text\n%v", pod.GetAnnotations())
	}
}

// WS-152 (part): the creation of a pod is sent twice, since the first answer took too long. The second is admitted and the pod made, and
// the first is refused by a later step.
func TestAPlaceThatAnotherRequestUsesIsNotGivenBack(t *testing.T) {
	s := newBookServer(t, withV(t, `{name: a, replicas: 1, missingReplicas: 1}, {name: b, replicas: 0, missingReplicas: 3}`))
	b, spread := s.behind(t, &standing{})
	pod := workloadspread.Creation{Key: "web-1", Version: "v"}
	first, err := b.Create(t.Context(), spread, pod, prepared)
	if err != nil || !first.Made {
		t.Fatalf("%+v %v", first, err)
	}
	second, err := b.Create(t.Context(), spread, pod, prepared)
	if err != nil || chosen(second) != "a" || !second.Booked {
		t.Fatalf("%+v %v", second, err)
	}
	// web-1 is made by the second. The first ends now, refused.
	pod.At = first.At
	if err := b.Release(t.Context(), spread, pod); err != nil {
		t.Fatal(err)
	}
	third, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "web-2", Version: "v"}, prepared)
	if err != nil {
		t.Fatal(err)
	}
	if chosen(third) == "a" {
		t.Errorf("subset a of 2 has web-0, web-1, and gets web-2: %+v", s.stored(t).Status.VersionedSubsetStatuses["v"][0])
	}
}
