package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// WS-001: pods of a workload that was there before fill the subsets in their order as they are created, and
// leave those behind first when there are to be fewer. The workload is not written; of pods only annotations
// are, and their cost is what steers it. The rules that bring a pod to its nodes are shown by
// TestWhereTheRulesOfASubsetGo.
func TestWhatAWorkloadSpreadIsFor(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2, workloadspreadtest.Zone("a")),
		workloadspreadtest.Subset("b", 1, workloadspreadtest.Zone("b")), workloadspreadtest.Subset("c", nil, workloadspreadtest.Zone("c"))), 0)
	s.BeforeWrite = func(w simulation.Write, before, after client.Object) {
		switch now, isPod := after.(*corev1.Pod); {
		case w.Key.Kind == "WorkloadSpread" && w.Subresource == "status":
		case !isPod:
			t.Errorf("written was %+v", w)
		default:
			was := before.(*corev1.Pod).DeepCopy()
			was.Annotations, was.ResourceVersion = now.Annotations, now.ResourceVersion
			sameSecond := cmp.Comparer(func(a, b metav1.Time) bool { return a.Unix() == b.Unix() }) // as patches write them
			if diff := cmp.Diff(was, now, sameSecond); diff != "" {
				t.Errorf("of pod %s more than annotations: %s", now.Name, diff)
			}
		}
	}
	spread := func(when string, want map[string]int) {
		t.Helper()
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
		got, highest := map[string]int{}, map[string]int{}
		for _, pod := range s.active() {
			placed, _ := pub.ParsePlacement(pod.Annotations)
			got[placed.Subset]++
			if pod.Spec.NodeName != "node-"+placed.Subset {
				t.Errorf("%s: pod %s of %s is on %s", when, pod.Name, placed.Subset, pod.Spec.NodeName)
			}
			highest[placed.Subset] = costOf(pod)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", when, diff)
		}
		for _, pair := range [][2]string{{"a", "b"}, {"b", "c"}, {"a", "c"}} {
			if got[pair[0]] > 0 && got[pair[1]] > 0 && highest[pair[0]] <= highest[pair[1]] {
				t.Errorf("%s: pods of %s cost %d, those of %s %d", when, pair[0], highest[pair[0]], pair[1], highest[pair[1]])
			}
		}
	}
	s.scale(1)
	spread("one", map[string]int{"a": 1})
	s.scale(5)
	spread("five", map[string]int{"a": 2, "b": 1, "c": 2})
	s.scale(3)
	spread("three", map[string]int{"a": 2, "b": 1})
	s.scale(2)
	spread("two", map[string]int{"a": 2})
	s.scale(4)
	spread("four", map[string]int{"a": 2, "b": 1, "c": 1})
}

// WS-107: a pod that ends by itself, which no request announces, is counted out by its phase, and its place
// is free again. That the end of a pod gives reason to count is shown by TestPodEvents.
func TestAPodThatEndsByItselfMakesRoom(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2, workloadspreadtest.Zone("a")),
			workloadspreadtest.Subset("b", nil, workloadspreadtest.Zone("b"))), 0)
		s.scale(2)
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
		subset := func() appsv1beta1.WorkloadSpreadSubsetStatus { return s.spread().Status.SubsetStatuses[0] }
		if got := subset().Replicas; got != 2 {
			t.Fatalf("replicas of the subset: got %d, want 2\n%+v", got, subset())
		}
		if got := subset().MissingReplicas; got != 0 {
			t.Fatalf("missing replicas of the subset: got %d, want 0\n%+v", got, subset())
		}
		ended := s.active()[0].Name
		s.Change(podKey(ended), func(o client.Object) { o.(*corev1.Pod).Status.Phase = phase })
		// Nothing but the controller acts: the workload has not replaced it yet.
		for range 20 {
			s.Events(1 << 20)
			s.Manage()
		}
		got := subset()
		if got.Replicas != 1 {
			t.Errorf("%s: replicas: got %d, want 1\n%+v", phase, got.Replicas, got)
		}
		if got.MissingReplicas != 1 {
			t.Errorf("%s: missing replicas: got %d, want 1\n%+v", phase, got.MissingReplicas, got)
		}
		if len(got.DeletingPods) > 0 {
			t.Errorf("%s: pods being deleted: got %v, want none\n%+v", phase, got.DeletingPods, got)
		}
	}
}
