package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}}
}

// withV is a WorkloadSpread of two subsets with these lists of version v.
func withV(t *testing.T, lists string) *appsv1beta1.WorkloadSpread {
	t.Helper()
	return workloadspreadtest.Read(t, strings.Replace(two, "{other: ", "{v: ["+lists+"], other: ", 1))
}

// chosen is the name of the subset that a decision chooses.
func chosen(d workloadspread.Decision) string {
	if d.Subset == nil {
		return "none"
	}
	return d.Subset.Name
}

// WS-074 (part): a deletion that was admitted, and refused after that, frees no place. The API server is asked only where a place
// depends on it, and once for a deletion that has happened. A deletion that has not happened stays booked.
func TestADeletionThatHasNotHappenedFreesNoPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		phase   corev1.PodPhase
		ends    bool
		absent  bool
		answers error
		subset  string
	}{
		"it stays":                       {subset: "b"},
		"it ends":                        {ends: true, subset: "a"},
		"it is gone":                     {absent: true, subset: "a"},
		"it has failed":                  {phase: corev1.PodFailed, subset: "a"},
		"the API server does not answer": {answers: apierrors.NewTimeoutError("too slow", 1), subset: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			spread := workloadspreadtest.Read(t, strings.Replace(two, "{other: ",
				`{v: [{name: a, replicas: 2, missingReplicas: 1, deletingPods: {gone: "2026-01-01T00:00:00Z"}}, {name: b, replicas: 0, missingReplicas: 3}], other: `, 1))
			s := newBookServer(t, spread)
			if !tt.absent {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "gone"}, Status: corev1.PodStatus{Phase: tt.phase}}
				if tt.ends {
					pod.Finalizers = []string{"afloat.dev/test"}
				}
				if err := s.Create(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				if tt.ends {
					if err := s.Delete(t.Context(), pod); err != nil {
						t.Fatal(err)
					}
				}
			}
			pods := 0
			reads := interceptor.NewClient(s, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
				object client.Object, options ...client.GetOption) error {
				if _, isPod := object.(*corev1.Pod); isPod {
					if pods++; tt.answers != nil {
						return tt.answers
					}
				}
				return c.Get(ctx, key, object, options...)
			}})
			stored := s.stored(t)
			b := NewBooker(reads, reads, func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return stored }, &standing{}, logr.Discard(), time.Now)
			d, err := b.Create(t.Context(), stored, workloadspread.Creation{Key: "new", Generated: true, Version: "v"}, prepared)
			if err != nil || d.Subset == nil || d.Subset.Name != tt.subset {
				t.Fatalf("got %+v, %v, want subset %s", d, err, tt.subset)
			}
			list := s.stored(t).Status.VersionedSubsetStatuses["v"]
			if missing := map[string]int32{"a": 0, "b": 1}[tt.subset]; len(list[0].DeletingPods) != 1 || list[0].MissingReplicas != missing {
				t.Errorf("subset a after that: %+v, want one going and %d missing", list[0], missing)
			}
			if pods != 1 {
				t.Errorf("reads of the pod: got %d, want 1", pods)
			}
			// The next one has no place in subset a either, and nobody asks again so soon.
			if d, err := b.Create(t.Context(), s.stored(t), workloadspread.Creation{Key: "next", Generated: true, Version: "v"}, prepared); err != nil ||
				d.Subset == nil || d.Subset.Name != "b" || pods != 1 {
				t.Errorf("the next pod: got %+v, %v, %d reads of the pod", d, err, pods)
			}
		})
	}
}

// WS-074 (part): the cache of this replica lags and shows an earlier pod of the name, which ends. The pod of that name now is active,
// and its deletion was refused.
func TestTheCacheShowsAnEarlierPodOfTheName(t *testing.T) {
	s := newBookServer(t, withV(t, `{name: a, replicas: 2, missingReplicas: 1, deletingPods: {web-0: "2026-01-01T00:00:00Z"}}, {name: b, replicas: 0, missingReplicas: 3}`))
	for _, name := range []string{"web-0", "web-1"} { // both are active: subset a has its 2 pods
		if err := s.Create(t.Context(), podNamed(name)); err != nil {
			t.Fatal(err)
		}
	}
	cache := interceptor.NewClient(s, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
		object client.Object, options ...client.GetOption) error {
		if pod, isPod := object.(*corev1.Pod); isPod {
			*pod = *podNamed(key.Name)
			pod.UID, pod.DeletionTimestamp = "earlier", new(metav1.Now())
			return nil
		}
		return c.Get(ctx, key, object, options...)
	}})
	stored := s.stored(t)
	b := NewBooker(cache, s, func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return stored }, &standing{}, logr.Discard(), time.Now)
	d, err := b.Create(t.Context(), stored, workloadspread.Creation{Key: "new", Generated: true, Version: "v"}, prepared)
	if err != nil {
		t.Fatal(err)
	}
	if chosen(d) == "a" {
		t.Errorf("subset a has two active pods of two, and gets a third: %+v", s.stored(t).Status.VersionedSubsetStatuses["v"][0])
	}
}

// WS-074 (part): the deletion of a pod has happened, the pod is made again, and its deletion is admitted in the same second and refused.
func TestTheNextPodOfTheNameStays(t *testing.T) {
	s := newBookServer(t, withV(t, `{name: a, replicas: 2, missingReplicas: 0}, {name: b, replicas: 0, missingReplicas: 3}`))
	b, spread := s.behind(t, &standing{})
	now := time.Date(2026, 1, 1, 12, 0, 0, 100e6, time.UTC)
	b.now = func() time.Time { return now }
	make := func(name string) {
		t.Helper()
		if err := s.Create(t.Context(), podNamed(name)); err != nil {
			t.Fatal(err)
		}
	}
	book := func(key string) string {
		t.Helper()
		d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: key, Version: "v"}, prepared)
		if err != nil {
			t.Fatal(err)
		}
		return chosen(d)
	}
	drop := func(name string) {
		t.Helper()
		if d, err := b.Delete(t.Context(), spread, workloadspread.Deletion{Name: name, Version: "v", Subset: "a"}); err != nil || !d.Booked {
			t.Fatalf("%+v %v", d, err)
		}
	}
	make("web-0")
	make("web-1")
	drop("web-0")
	if err := s.Delete(t.Context(), podNamed("web-0")); err != nil { // force
		t.Fatal(err)
	}
	now = now.Add(100 * time.Millisecond)
	if got := book("x"); got != "a" { // asks for web-0, which is gone; the creation of x is refused by a quota, and its place released
		t.Fatalf("x gets %s", got)
	}
	if err := b.Release(t.Context(), spread, workloadspread.Creation{Key: "x", Version: "v"}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(100 * time.Millisecond)
	if got := book("web-0"); got != "a" {
		t.Fatalf("web-0 gets %s", got)
	}
	make("web-0")
	now = now.Add(100 * time.Millisecond)
	drop("web-0") // refused after that by a precondition
	if got := book("y"); got == "a" {
		t.Errorf("subset a has two active pods of two, and y gets there too: %+v", s.stored(t).Status.VersionedSubsetStatuses["v"][0])
	}
}

// WS-074 (part): twenty evictions that were refused do not hide a later deletion that has happened.
func TestManyRefusedDeletionsHideNoneThatHappened(t *testing.T) {
	going := []string{`real: "2026-01-01T00:00:05Z"`}
	for i := range 20 {
		going = append(going, fmt.Sprintf(`p-%d: "2026-01-01T00:00:00Z"`, i))
	}
	spread := workloadspreadtest.Read(t, `{metadata: {name: ws, namespace: d, uid: u1, generation: 1}, spec: {targetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: r}, subsets: [{name: a, maxReplicas: 21}]},
	status: {observedGeneration: 1, versionedSubsetStatuses: {v: [{name: a, replicas: 21, missingReplicas: 21, deletingPods: {`+strings.Join(going, ", ")+`}}]}}}`)
	s := newBookServer(t, spread)
	for i := range 20 {
		if err := s.Create(t.Context(), podNamed(fmt.Sprintf("p-%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	b, stored := s.behind(t, &standing{})
	d, err := b.Create(t.Context(), stored, workloadspread.Creation{Key: "new", Generated: true, Version: "v"}, prepared)
	if err != nil {
		t.Fatal(err)
	}
	if chosen(d) != "a" {
		t.Errorf("subset a has 20 pods of 21, and the pod that replaces the 21st stays without a subset: %s", d.Reason)
	}
}

// slowPods is an API server whose reads of pods take a while.
func slowPods(s *bookServer, each time.Duration, reads *atomic.Int32) client.WithWatch {
	return interceptor.NewClient(s, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
		object client.Object, options ...client.GetOption) error {
		if _, isPod := object.(*corev1.Pod); isPod {
			reads.Add(1)
			select {
			case <-time.After(each):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return c.Get(ctx, key, object, options...)
	}})
}

// writing is a client whose writes end with their context, as those of a real one.
func writing(s *bookServer) client.WithWatch {
	return interceptor.NewClient(s, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object,
		patch client.Patch, options ...client.SubResourcePatchOption) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.SubResource(of).Patch(ctx, object, patch, options...)
	}})
}

// WS-074 (part): a node is drained, the evictions are refused, and the workload is scaled up at the same time.
func TestReadsOfOneDecision(t *testing.T) {
	var subsets, lists []string
	const n = 30
	for i := range n {
		var going []string
		for j := range 20 {
			going = append(going, fmt.Sprintf(`p-%d-%d: "2026-01-01T00:00:00Z"`, i, j))
		}
		subsets = append(subsets, fmt.Sprintf("{name: s%d, maxReplicas: 20}", i))
		lists = append(lists, fmt.Sprintf("{name: s%d, replicas: 20, missingReplicas: 20, deletingPods: {%s}}", i, strings.Join(going, ", ")))
	}
	spread := workloadspreadtest.Read(t, `{metadata: {name: ws, namespace: d, uid: u1, generation: 1}, spec: {targetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: r}, subsets: [`+
		strings.Join(subsets, ", ")+`, {name: last}]},
	status: {observedGeneration: 1, versionedSubsetStatuses: {v: [`+strings.Join(lists, ", ")+`, {name: last, replicas: 0, missingReplicas: -1}]}}}`)
	s := newBookServer(t, spread)
	for i := range n {
		for j := range 20 {
			if err := s.Create(t.Context(), podNamed(fmt.Sprintf("p-%d-%d", i, j))); err != nil {
				t.Fatal(err)
			}
		}
	}
	stored := s.stored(t)
	var reads atomic.Int32
	b := NewBooker(s, slowPods(s, 0, &reads), func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return stored }, &standing{}, logr.Discard(), time.Now)
	if _, err := b.Create(t.Context(), stored, workloadspread.Creation{Key: "new", Generated: true, Version: "v"}, prepared); err != nil {
		t.Fatal(err)
	}
	if reads.Load() > 20 {
		t.Errorf("%d reads of the API server for one decision, want at most 20 (WS-074)", reads.Load())
	}
}

// WS-074 (part): 300 evictions of the last seconds were refused, and the workload is scaled up by 250. Each read takes 20 ms, and a pod
// has 5 s.
func TestScaleUpDuringARefusedDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var going []string
		for i := range 300 {
			going = append(going, fmt.Sprintf(`p-%d: "2000-01-01T00:00:00Z"`, i))
		}
		spread := workloadspreadtest.Read(t, `{metadata: {name: ws, namespace: d, uid: u1, generation: 1}, spec: {targetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: r}, subsets: [{name: a, maxReplicas: 300}, {name: b}]},
	status: {observedGeneration: 1, versionedSubsetStatuses: {v: [{name: a, replicas: 300, missingReplicas: 300, deletingPods: {`+strings.Join(going, ", ")+`}}, {name: b, replicas: 0, missingReplicas: -1}]}}}`)
		s := newBookServer(t, spread)
		for i := range 300 {
			if err := s.Create(t.Context(), podNamed(fmt.Sprintf("p-%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		stored := s.stored(t)
		var reads, refused, ok atomic.Int32
		b := NewBooker(writing(s), slowPods(s, 20*time.Millisecond, &reads), func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return stored }, &standing{}, logr.Discard(), time.Now)
		for round := range 3 { // their controller tries again
			var all sync.WaitGroup
			for i := range 250 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					if _, err := b.Create(ctx, stored, workloadspread.Creation{Key: fmt.Sprintf("new-%d-%d", round, i), Generated: true, Version: "v"}, prepared); err != nil {
						refused.Add(1)
					} else {
						ok.Add(1)
					}
				})
			}
			all.Wait()
		}
		if refused.Load() > 0 {
			t.Errorf("%d creations are refused because 300 deletions were; %d admitted", refused.Load(), ok.Load())
		}
	})
}

// WS-074 (part): two pods are deleted at the same time. The replacement of one is admitted while the deletion of the other is on its
// way to the storage. Then that happens, too, and its replacement comes.
func TestReplacementsOfABurst(t *testing.T) {
	s := newBookServer(t, withV(t, `{name: a, replicas: 2, missingReplicas: 0}, {name: b, replicas: 3, missingReplicas: 0}`))
	for _, name := range []string{"p1", "p2"} {
		pod := podNamed(name)
		pod.Finalizers = []string{"afloat.dev/grace"} // stands for the grace period
		if err := s.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	b, spread := s.behind(t, &standing{})
	for _, name := range []string{"p1", "p2"} {
		if d, err := b.Delete(t.Context(), spread, workloadspread.Deletion{Name: name, Version: "v", Subset: "a"}); err != nil || !d.Booked {
			t.Fatalf("%+v %v", d, err)
		}
	}
	happens := func(name string) {
		if err := s.Delete(t.Context(), podNamed(name)); err != nil {
			t.Fatal(err)
		}
	}
	create := func(key string) workloadspread.Decision {
		d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: key, Generated: true, Version: "v"}, prepared)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	happens("p2")
	if d := create("n1"); chosen(d) != "a" {
		t.Fatalf("the first replacement gets %s: %s", chosen(d), d.Reason)
	}
	happens("p1")
	if d := create("n2"); chosen(d) != "a" {
		t.Errorf("both pods of subset a go, one replacement came; the second gets subset %s: %s", chosen(d), d.Reason)
	}
}

// WS-074 (part), WS-112 (part): what was asked is not asked again after a conflict, which would make the next one likely. Another
// replica writes every 50 ms, and 20 reads of 5 ms stand between reading and writing.
func TestAskingLosesNoRaces(t *testing.T) {
	for _, refused := range []int{0, 20} {
		t.Run(fmt.Sprintf("%d refused deletions", refused), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var going []string
				for i := range refused {
					going = append(going, fmt.Sprintf(`p-%d: "2000-01-01T00:00:00Z"`, i))
				}
				spread := workloadspreadtest.Read(t, fmt.Sprintf(`{metadata: {name: ws, namespace: d, uid: u1, generation: 1}, spec: {targetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: r}, subsets: [{name: a, maxReplicas: 20}, {name: b, maxReplicas: 20}]},
	status: {observedGeneration: 1, versionedSubsetStatuses: {v: [{name: a, replicas: 20, missingReplicas: %d, deletingPods: {`+strings.Join(going, ", ")+`}}, {name: b, replicas: 0, missingReplicas: 20}]}}}`, refused))
				s := newBookServer(t, spread)
				for i := range refused {
					if err := s.Create(t.Context(), podNamed(fmt.Sprintf("p-%d", i))); err != nil {
						t.Fatal(err)
					}
				}
				stored := s.stored(t)
				var reads atomic.Int32
				b := NewBooker(writing(s), slowPods(s, 5*time.Millisecond, &reads), func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return stored }, &standing{}, logr.Discard(), time.Now)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				var all sync.WaitGroup
				all.Go(func() { // another replica, which books for another version
					for i := 0; ctx.Err() == nil; i++ {
						time.Sleep(50 * time.Millisecond)
						now := s.stored(t)
						now.Status.VersionedSubsetStatuses["other"] = []appsv1beta1.WorkloadSpreadSubsetStatus{{Name: fmt.Sprint("other", i%2)}}
						if err := s.Status().Update(t.Context(), now); err != nil {
							t.Log(err)
						}
					}
				})
				_, err := b.Create(ctx, stored, workloadspread.Creation{Key: "new", Generated: true, Version: "v"}, prepared)
				if err != nil {
					t.Errorf("the creation is refused: %v", err)
				}
				if int(reads.Load()) != refused {
					t.Errorf("reads of pods: got %d, want %d", reads.Load(), refused)
				}
				cancel()
				all.Wait()
			})
		})
	}
}

// WS-074 (part): while the API server does not answer reads of pods, no place is free that depends on them, and pods are admitted in
// time.
func TestAskingEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBookServer(t, withV(t, `{name: a, replicas: 2, missingReplicas: 2, deletingPods: {x: "2000-01-01T00:00:00Z", y: "2000-01-01T00:00:00Z"}}, {name: b, replicas: 0, missingReplicas: 3}`))
		stored := s.stored(t)
		var reads atomic.Int32
		b := NewBooker(writing(s), slowPods(s, time.Hour, &reads), func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return stored }, &standing{}, logr.Discard(), time.Now)
		for i, within := range []time.Duration{time.Minute, 2 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			begin := time.Now()
			d, err := b.Create(ctx, stored, workloadspread.Creation{Key: fmt.Sprint("new-", i), Generated: true, Version: "v"}, prepared)
			cancel()
			if err != nil || chosen(d) != "b" {
				t.Errorf("got subset %s, %v, want subset b", chosen(d), err)
			}
			if took := time.Since(begin); took > min(time.Second, within/4) {
				t.Errorf("it took %s of %s", took, within)
			}
		}
		// A request that ends meanwhile tells nothing about the pods.
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := b.Create(ctx, stored, workloadspread.Creation{Key: "ends", Generated: true, Version: "v"}, prepared); err == nil {
			t.Error("a request that ended was decided")
		}
		if _, known := b.deletions.known(types.NamespacedName{Namespace: "d", Name: "y"}, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); known {
			t.Error("what was not answered is remembered")
		}
	})
}

// WS-074 (part): a deletion that was just admitted happens in a moment, so that it is asked about again as soon as a place depends on
// it. One that has not happened after seconds is likely refused, and is not asked about again for a second.
func TestHowLongADeletionIsBelievedToHaveNotHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBookServer(t, withV(t, ""))
		key := types.NamespacedName{Namespace: "d", Name: "web-1"}
		if err := s.Create(t.Context(), podNamed("web-1")); err != nil {
			t.Fatal(err)
		}
		d := &deletions{live: s, now: time.Now, answers: map[types.NamespacedName]answer{}}
		booked := time.Now().Truncate(time.Second)
		for _, tt := range []struct {
			age, after time.Duration
			known      bool
		}{
			{900 * time.Millisecond, 0, false},
			{5 * time.Second, 900 * time.Millisecond, true},
			{10 * time.Second, 1100 * time.Millisecond, false},
		} {
			time.Sleep(time.Until(booked.Add(tt.age)))
			if d.going(t.Context(), key, booked, time.Minute) {
				t.Fatal("the pod is there, and its deletion counts as happened")
			}
			time.Sleep(tt.after)
			if going, known := d.known(key, booked); going || known != tt.known {
				t.Errorf("asked after %s, and again %s later: got going=%v known=%v, want known=%v", tt.age, tt.after, going, known, tt.known)
			}
		}
	})
}
