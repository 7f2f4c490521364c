package controller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// SS-228: the first that is written of an upgrade is the new image; until then the pod serves, and afterwards
// its readiness is what kubelet finds. Whatever the pod has to be held by stays as it is: conditions, gates,
// lifecycle, and no grace annotation comes.
func TestAnUpgradeTakesNoPodOutOfService(t *testing.T) {
	gates := []corev1.PodConditionType{pub.InPlaceUpdateReady, pub.KruisePodReady}
	for name, gated := range map[string]bool{"pods with gates": true, "pods without": false} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, sidecarsettest.Set(), 3, func(pod *corev1.Pod) {
				if gated {
					for _, gate := range gates {
						pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
						pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue})
					}
				}
			})
			first := map[string]bool{}
			s.BeforeWrite = func(w simulation.Write, before, after client.Object) {
				old, isPod := before.(*corev1.Pod)
				if !isPod {
					return
				}
				now := after.(*corev1.Pod)
				if !slices.Equal(old.Spec.ReadinessGates, now.Spec.ReadinessGates) {
					t.Errorf("readiness gates: got %v, want %v; write %+v: gates %v, %v", old.Spec.ReadinessGates,
						now.Spec.ReadinessGates, w,
						now.Spec.ReadinessGates, now.Annotations)
				}
				if now.Annotations[pub.InPlaceUpdateGrace] != "" {
					t.Errorf("annotation in place update grace: got %q, want %q; write %+v: gates %v, %v",
						now.Annotations[pub.InPlaceUpdateGrace], "", w, now.Spec.ReadinessGates, now.Annotations)
				}
				if old.Labels[pub.LifecycleState] != now.Labels[pub.LifecycleState] {
					t.Errorf("label lifecycle state: got %q, want %q; write %+v: gates %v, %v",
						old.Labels[pub.LifecycleState],
						now.Labels[pub.LifecycleState], w, now.Spec.ReadinessGates, now.Annotations)
				}
				for _, condition := range append([]corev1.PodConditionType{corev1.PodReady}, gates...) {
					was, is := readiness.Condition(old, condition), readiness.Condition(now, condition)
					if (was == nil) != (is == nil) {
						t.Errorf("it was not there before: got %t, want %t; write %+v: %s was %+v and is %+v", was == nil,
							is == nil, w, condition, was, is)
					} else if was != nil && was.Status != is.Status {
						t.Errorf("status: got %q, want %q; write %+v: %s was %+v and is %+v", was.Status, is.Status, w,
							condition, was, is)
					}
				}
				if !first[w.Key.Name] {
					first[w.Key.Name] = true
					if !readiness.Ready(old) {
						t.Errorf("the old pod is ready: got false, want true; the first write to %s: ready %t, image %s, then %s", w.Key.Name,
							readiness.Ready(old), sidecarset.ImageOf(old, "proxy"), sidecarset.ImageOf(now, "proxy"))
					}
					if got := sidecarset.ImageOf(old, "proxy"); got != "proxy:1" {
						t.Errorf(`image of proxy before: got %q, want %q; the first write to %s: ready %t, image %s, then %s`,
							got, "proxy:1",
							w.Key.Name, readiness.Ready(old), sidecarset.ImageOf(old, "proxy"), sidecarset.ImageOf(now, "proxy"))
					}
					if got := sidecarset.ImageOf(now, "proxy"); got != "proxy:2" {
						t.Errorf(`image of proxy: got %q, want %q; the first write to %s: ready %t, image %s, then %s`, got,
							"proxy:2",
							w.Key.Name, readiness.Ready(old), sidecarset.ImageOf(old, "proxy"), sidecarset.ImageOf(now, "proxy"))
					}
				}
			}
			s.change(sidecarsettest.Image("proxy", "proxy:2"))
			if err := s.Settle(300); err != nil {
				t.Fatal(err)
			}
			status := s.set().Status
			if len(first) != 3 {
				t.Errorf("number of the first: got %d, want 3; %d pods were written, %+v", len(first), len(first), status)
			}
			if status.UpdatedReadyPods != 3 {
				t.Errorf("updated and ready pods: got %d, want 3; %d pods were written, %+v", status.UpdatedReadyPods,
					len(first), status)
			}
		})
	}
}
