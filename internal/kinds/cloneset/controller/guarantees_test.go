package controller

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// CS-001: as many pods as are wanted, alike but for their names, with claims of their own or without; what is
// lost is replaced; a changed template reaches them in place or by recreation, no faster than allowed, in the
// order asked for, and no more of them than the partition lets.
func TestWhatACloneSetIsFor(t *testing.T) {
	inPlace, reCreate := appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, appsv1beta1.ReCreateCloneSetPodUpdatePolicy
	for _, how := range []appsv1beta1.CloneSetPodUpdatePolicy{inPlace, reCreate} {
		for _, claimed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, claims %t", how, claimed), func(t *testing.T) {
				set := clonesettest.Set(4, clonesettest.Policy(how), clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) {
					r.PriorityStrategy = &pub.UpdatePriorityStrategy{WeightPriority: []pub.UpdatePriorityWeightTerm{
						{Weight: 1, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"first": "yes"}}}}}
				}))
				if claimed {
					clonesettest.Claims("1Gi")(set)
				}
				s := atRest(t, set, cloneset.Features{})
				s.Remove(podKey(s.active()[0].Name))
				if err := s.Settle(100); err != nil {
					t.Fatal(err)
				}
				expect := func(updated int) {
					t.Helper()
					got := 0
					for _, pod := range s.active() {
						if pod.Spec.Containers[0].Image == "nginx:2" {
							got++
						}
					}
					status := s.set().Status
					if n := len(s.active()); n != 4 {
						t.Fatalf("pods: got %d, want 4: %+v", n, status)
					}
					if status.AvailableReplicas != 4 {
						t.Fatalf("available pods: got %d, want 4: %+v", status.AvailableReplicas, status)
					}
					if got != updated {
						t.Fatalf("updated pods: got %d, want %d: %+v", got, updated, status)
					}
					data := s.data()
					if claimed != (len(data) == 4) {
						t.Errorf("claimed: got %t, want %t; claims %v", claimed, len(data) == 4, data)
					}
					if !claimed && len(data) != 0 {
						t.Errorf("number of fields: got %d, want 0; claims %v", len(data), data)
					}
				}
				expect(0)
				first := s.active()[2]
				s.Change(podKey(first.Name), func(o client.Object) { o.GetLabels()["first"] = "yes" })
				before := s.active()
				s.AfterWrite = func(simulation.Write) {
					down := 4
					for _, pod := range s.active() {
						if readiness.Ready(pod) && readiness.Settled(pod) {
							down--
						}
					}
					if down > 1 {
						t.Errorf("%d pods are down at once", down)
					}
				}
				s.Edit(clonesettest.Both(clonesettest.Image("nginx:2"), clonesettest.Partition(3)))
				if err := s.Settle(200); err != nil {
					t.Fatal(err)
				}
				expect(1)
				stays := slices.ContainsFunc(s.active(), func(pod *corev1.Pod) bool {
					return pod.UID == first.UID && pod.Spec.Containers[0].Image == "nginx:2"
				})
				gone := s.Get(podKey(first.Name)) == nil
				if stays != (how == inPlace) {
					t.Errorf("the first pod is gone: stays: got %t, want %t", stays, how == inPlace)
				}
				if gone != (how == reCreate) {
					t.Errorf("the first pod is gone: the first pod is gone: got %t, want %t", gone, how == reCreate)
				}
				s.Edit(clonesettest.Partition(0))
				if err := s.Settle(300); err != nil {
					t.Fatal(err)
				}
				expect(4)
				kept := 0
				for _, pod := range s.active() {
					if slices.ContainsFunc(before, func(b *corev1.Pod) bool { return b.UID == pod.UID }) {
						kept++
					}
				}
				if want := map[bool]int{true: 4, false: 0}[how == inPlace]; kept != want {
					t.Errorf("%d of the pods are those of before, want %d", kept, want)
				}
			})
		}
	}
}
