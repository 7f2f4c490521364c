package controller

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestAPodThatTheCacheShowsLateKeepsItsPlace: the manager's watch of pods stands still for longer than a
// booking lasts, while that of WorkloadSpreads goes on. The pods that were booked are there, and their places
// are not given to others (WS-114, WS-152).
func TestAPodThatTheCacheShowsLateKeepsItsPlace(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2, workloadspreadtest.Zone("a")),
		workloadspreadtest.Subset("b", nil, workloadspreadtest.Zone("b"))), 0)
	rests(t, s)
	s.scale(2)
	for range 5 {
		s.workload()
	}
	lost := s.coming[0].Name
	s.coming = s.coming[1:] // one is refused after it was admitted
	s.requests()
	hidden := podKey(s.AllPods()[0].Name)
	show := func() { // all but the pod
		s.Events(1 << 20)
		s.Hide(hidden)
	}
	looks := 0
	s.pass.Reader = placedReader{s.reader, &looks}
	for range 60 {
		show()
		s.Manage()
		s.Pass(time.Second)
	}
	show()
	s.Manage()
	a := workloadspread.SubsetStatus(s.spread().Status.VersionedSubsetStatuses["v1"], "a")
	if a == nil {
		t.Errorf("a: got nil, want a value; a has one pod, which the cache does not show, and %s never came: %+v", lost, a)
	} else if a.Replicas != 0 {
		t.Errorf("replicas: got %d, want 0; a has one pod, which the cache does not show, and %s never came: %+v",
			a.Replicas, lost, a)
	} else if len(a.CreatingPods) != 1 {
		t.Errorf("number of pods being created: got %d, want 1; a has one pod, which the cache does not show, and %s never came: %+v",
			len(a.CreatingPods), lost, a)
	} else if a.MissingReplicas != 1 {
		t.Errorf("missing replicas: got %d, want 1; a has one pod, which the cache does not show, and %s never came: %+v",
			a.MissingReplicas, lost, a)
	}
	if looks != 3 { // after 5 s, and then after 10 s
		t.Errorf("the API server listed the pods of the namespace %d times within 30 s, want 3", looks)
	}
	s.Change(hidden, func(client.Object) {}) // the watch goes on
	rests(t, s)
	if a := workloadspread.SubsetStatus(s.spread().Status.VersionedSubsetStatuses["v1"], "a"); a.Replicas != 2 {
		t.Errorf("replicas: got %d, want 2\n%+v", a.Replicas, a)
	} else if len(a.CreatingPods) != 0 {
		t.Errorf("number of pods being created: got %d, want 0\n%+v", len(a.CreatingPods), a)
	}
}

// TestNoPodIsAdoptedBeforeItIsCounted: the deletion of a pod frees its place in the count, so that the pod
// must be in it: it gets its annotation only after the status is written (WS-103, WS-130).
func TestNoPodIsAdoptedBeforeItIsCounted(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2, workloadspreadtest.Zone("a", "b", "c"))), 1)
	s.Refused = func(w simulation.Write) bool { return w.Key == spreadKey }
	for range 10 {
		s.Events(1 << 20)
		s.Manage()
		s.Pass(time.Second)
	}
	s.admitDeletion(s.AllPods()[0])
	for range 3 {
		s.admit("v1")
	}
	booked := 0
	for _, pod := range s.coming {
		if pod.Annotations[pub.MatchedWorkloadSpread] != "" {
			booked++
		}
	}
	if booked != 2 {
		t.Errorf("%d pods are put into a subset of 2", booked)
	}
}

// TestWhichPodsAreThere: those of the WorkloadSpread in the subset of their bookings, by the keys that they were booked under, whatever
// their number, unless they have ended or the cache shows them (WS-152 (part)).
func TestWhichPodsAreThere(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	pod := func(namespace, name, uid, placement string, finalizers ...string) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), Finalizers: finalizers,
			Annotations: map[string]string{pub.MatchedWorkloadSpread: placement}}}
	}
	var selectors []string
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod("d", "p", "1", `{"name":"ws","subset":"a"}`),
		pod("d", "x", "2", `{"name":"ws","subset":"a","uid":"id"}`), pod("d", "made-again", "3", `{"name":"ws","subset":"a"}`),
		pod("d", "renamed", "10", `{"name":"ws","subset":"a","uid":"other-id"}`), pod("d", "others", "4", `{"name":"other","subset":"a"}`), pod("d", "none", "5", ``), pod("e", "elsewhere", "6", `{"name":"ws","subset":"a"}`),
		pod("d", "shown", "7", `{"name":"ws","subset":"a"}`), pod("d", "in-b", "8", `{"name":"ws","subset":"b"}`),
		pod("d", "ending", "9", `{"name":"ws","subset":"a"}`, "x/y")).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			selectors = append(selectors, (&client.ListOptions{}).ApplyOptions(options).AsListOptions().FieldSelector)
			return c.List(ctx, list, options...)
		}}).Build()
	if err := live.Delete(t.Context(), pod("d", "ending", "9", "")); err != nil {
		t.Fatal(err)
	}
	cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod("d", "shown", "7", `{"name":"ws","subset":"a"}`),
		pod("d", "made-again", "earlier", `{"name":"ws","subset":"a"}`)).Build()
	var overdue []workloadspread.LostBooking
	for _, key := range []string{"p", "id", "renamed", "made-again", "others", "none", "elsewhere", "shown", "in-b", "ending", "never"} {
		overdue = append(overdue, workloadspread.LostBooking{Subset: "a", Pod: key})
	}
	found, err := (&kubeReader{&Kube{API: &reconcile.API{Client: cache, Live: live}}}).Placed(t.Context(),
		&appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "ws"}}, overdue)
	if err != nil {
		t.Fatal(err)
	}
	want := map[workloadspread.LostBooking]bool{{Subset: "a", Pod: "p"}: true, {Subset: "a", Pod: "id"}: true, {Subset: "a", Pod: "renamed"}: true,
		{Subset: "a", Pod: "made-again"}: true}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("bookings that were found (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"status.phase!=Succeeded,status.phase!=Failed"}, selectors); diff != "" {
		t.Errorf("which pods are listed (-want +got):\n%s", diff)
	}
}

// TestAPodThatIsBookedBehindTheCacheKeepsItsPlace: the manager's watches of pods and of WorkloadSpreads both
// stand still. It writes the status because of another booking, meets a conflict, and finds in the API server
// a booking that its cache has never shown. The pod of that one is there: its place is not given to others
// (WS-114, WS-152).
func TestAPodThatIsBookedBehindTheCacheKeepsItsPlace(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2, workloadspreadtest.Zone("a")),
		workloadspreadtest.Subset("b", nil, workloadspreadtest.Zone("b"))), 0)
	rests(t, s)
	s.scale(2)
	s.workload()
	s.coming = nil // it is refused after it was admitted
	s.Events(1 << 20)
	s.Manage() // it knows of the booking from now on
	s.Events(1 << 20)
	shown := s.spread()
	s.Pass(time.Second)
	s.workload()
	s.requests()
	there := s.AllPods()[0].Name
	stale := func() {
		s.Events(1 << 20)
		s.Hide(podKey(there))
		s.Show(spreadKey, shown)
	}
	s.Pass(workloadspread.CreationTimeout + time.Second)
	for range 5 {
		stale()
		s.Manage()
		s.Pass(time.Second)
		a := workloadspread.SubsetStatus(s.spread().Status.VersionedSubsetStatuses["v1"], "a")
		if a == nil {
			t.Fatalf("a: got nil, want a value; pod %s is there, and its place is given away: %+v", there, a)
		} else if len(a.CreatingPods)+int(a.Replicas) < 1 {
			t.Fatalf("number of places taken: got %d, want at least 1; pod %s is there, and its place is given away: %+v",
				len(a.CreatingPods)+int(a.Replicas), there, a)
		} else if a.MissingReplicas > 1 {
			t.Fatalf("missing replicas: got %d, want at most 1; pod %s is there, and its place is given away: %+v",
				a.MissingReplicas, there, a)
		}
	}
	s.Events(1 << 20)
	s.Change(podKey(there), func(client.Object) {}) // the watches go on
	s.Change(spreadKey, func(client.Object) {})
	rests(t, s)
	if a := workloadspread.SubsetStatus(s.spread().Status.VersionedSubsetStatuses["v1"], "a"); a == nil {
		t.Error("a: got nil, want a value")
	} else if a.Replicas != 2 {
		t.Errorf("replicas: got %d, want 2\n%+v", a.Replicas, a)
	} else if len(a.CreatingPods) != 0 {
		t.Errorf("number of pods being created: got %d, want 0\n%+v", len(a.CreatingPods), a)
	}
}

// placedReader counts the looks at the API server for pods of overdue bookings.
type placedReader struct {
	simReader
	looks *int
}

func (r placedReader) Placed(ctx context.Context, spread *appsv1beta1.WorkloadSpread, overdue []workloadspread.LostBooking) (
	map[workloadspread.LostBooking]bool, error) {
	*r.looks++
	return r.simReader.Placed(ctx, spread, overdue)
}

// WS-152 (part): a controller whose cache lags creates a pod that exists, which the API server refuses. The booking expires, and the pods
// of the namespace are not listed again and again.
func TestACreationOfAPodThatExistsExpires(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b int
	}{{"booked in another subset", 1, 1}, {"booked in its own subset", 2, 1}} {
		t.Run(test.name, func(t *testing.T) {
			s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", test.a, workloadspreadtest.Zone("a", "b", "c")),
				workloadspreadtest.Subset("b", test.b, workloadspreadtest.Zone("a", "b", "c"))), 1)
			rests(t, s) // the only pod is adopted by subset a
			s.Pass(2 * time.Minute)
			rests(t, s)
			name := s.active()[0].Name
			before := s.spread().Status.VersionedSubsetStatuses["v1"]
			ledger := workloadspread.NewLedger(s.spread(), targetFrom(s.Get(deploymentKey)), s.Now())
			_, commit := ledger.Create(workloadspread.Creation{Key: name, Version: "v1"})
			commit()
			s.book("v1", ledger) // and the API server answers AlreadyExists
			looks := 0
			s.pass.Reader = placedReader{s.reader, &looks}
			for range 600 { // ten minutes
				s.Events(1 << 20)
				s.Manage()
				s.Pass(time.Second)
			}
			for i, sub := range s.spread().Status.VersionedSubsetStatuses["v1"] {
				if len(sub.CreatingPods) > 0 {
					t.Errorf("subset %s still waits for a creation that was refused ten minutes ago: %+v (before %+v)", sub.Name, sub.CreatingPods, before[i])
				}
				if sub.MissingReplicas != before[i].MissingReplicas {
					t.Errorf("subset %s: %d places missing, want %d", sub.Name, sub.MissingReplicas, before[i].MissingReplicas)
				}
			}
			if looks > 1 {
				t.Errorf("the API server listed all pods of the namespace %d times in ten minutes", looks)
			}
		})
	}
}

// WS-151 (part), WS-152 (part): the manager's watch of pods stands still. A pod that it has not seen is deleted, which renames its
// booking, and the deletion is refused. The pod is there all the time, and keeps its place.
func TestAPodThatTheCacheShowsLateIsNotDeleted(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2, workloadspreadtest.Zone("a")),
		workloadspreadtest.Subset("b", nil, workloadspreadtest.Zone("b"))), 0)
	rests(t, s)
	s.scale(1)
	s.workload()
	s.requests()
	pod := s.AllPods()[0]
	show := func() {
		s.Events(1 << 20)
		s.Hide(podKey(pod.Name))
	}
	show()
	s.Manage()
	placed, _ := workloadspread.PlacementOf(s.spread(), pod)
	ledger := workloadspread.NewLedger(s.spread(), targetFrom(s.Get(deploymentKey)), s.Now())
	d, commit := ledger.Delete(workloadspread.Deletion{Name: pod.Name, Version: "v1", Subset: placed.Subset, Booking: placed.UID})
	commit()
	if !d.Booked {
		t.Fatal(d)
	}
	s.book("v1", ledger)
	for range 60 {
		show()
		s.Manage()
		s.Pass(time.Second)
	}
	s.admit("v1")
	s.admit("v1")
	s.requests()
	n := 0
	for _, pod := range s.active() {
		if placed, _ := workloadspread.PlacementOf(s.spread(), pod); placed.Subset == "a" {
			n++
		}
	}
	if n > 2 {
		t.Errorf("subset a of 2 has %d active pods", n)
	}
}
