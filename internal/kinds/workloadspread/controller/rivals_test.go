package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// Two WorkloadSpreads of the same pods, which two requests at once, or targets one above the other, can lead
// to, do not write each other's pods for ever: a pod stays with the one that it is annotated for, as long as
// that exists and may lead to it (WS-141).
func TestRivalsLeaveEachOthersPods(t *testing.T) {
	rival := func(change func(*appsv1beta1.WorkloadSpread)) *appsv1beta1.WorkloadSpread {
		spread := workloadspreadtest.Spread(workloadspreadtest.Subset("x", nil))
		spread.Name, spread.UID, spread.ResourceVersion = "rival", "", ""
		change(spread)
		return spread
	}
	target := func(kind, name string) func(*appsv1beta1.WorkloadSpread) {
		return func(spread *appsv1beta1.WorkloadSpread) {
			spread.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps/v1", Kind: kind, Name: name}
		}
	}
	for name, test := range map[string]struct {
		rival *appsv1beta1.WorkloadSpread
		taken bool
	}{
		"of the same target":         {rival(func(*appsv1beta1.WorkloadSpread) {}), false},
		"of the target's ReplicaSet": {rival(target("ReplicaSet", "web-v1")), false},
		"there is none":              {nil, true},
		"of another target":          {rival(target("Deployment", "api")), true},
		"of other pods, by its filter": {rival(func(s *appsv1beta1.WorkloadSpread) {
			s.Spec.TargetFilter = &appsv1beta1.TargetFilter{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "driver"}}}
		}), true},
		"one that is about to be no more": {rival(func(s *appsv1beta1.WorkloadSpread) {
			s.Finalizers, s.DeletionTimestamp = []string{"somebody/else"}, &metav1.Time{Time: workloadspreadtest.Clock}
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", nil)), 3)
			if test.rival != nil {
				s.Store(simulation.Key{Kind: "WorkloadSpread", Name: "rival"}, test.rival)
			}
			for _, pod := range s.AllPods() {
				s.Change(podKey(pod.Name), func(o client.Object) {
					workloadspreadtest.Note(pub.MatchedWorkloadSpread, `{"name":"rival","subset":"x"}`)(o.(*corev1.Pod))
				})
			}
			s.Start()
			rests(t, s)
			for _, pod := range s.AllPods() {
				placed, _ := pub.ParsePlacement(pod.Annotations)
				if (placed.Name == "ws") != test.taken {
					t.Errorf("the placement is that of ws: got %t, want %t\n%v", placed.Name == "ws", test.taken,
						pod.Annotations)
				}
				if (pod.Annotations[pub.PodDeletionCost] != "") != test.taken {
					t.Errorf("the pod has a cost of deletion: got %t, want %t\n%v",
						pod.Annotations[pub.PodDeletionCost] != "", test.taken,
						pod.Annotations)
				}
			}
			if n := s.spread().Status.SubsetStatuses[0].Replicas; (n == 3) != test.taken {
				t.Errorf("%d pods are counted", n)
			}
		})
	}
}

// When a WorkloadSpread is gone the others of its namespace look at the pods that they left to it.
func TestRivalsAreToldOfAnEnd(t *testing.T) {
	gone := spreadTo("gone", "default", "apps/v1", "Deployment", "web")
	r := &reconciler{kube: &kubeReader{&Kube{API: cachedAPI(t, spreadTo("ws", "default", "apps/v1", "Deployment", "web"), gone,
		spreadTo("ws", "other", "apps/v1", "Deployment", "web"))}}}
	q := &requested{}
	r.rivals(t.Context(), event.DeleteEvent{Object: gone}, q)
	if diff := cmp.Diff([]string{"default/ws"}, q.names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
