package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
)

// A policy protects a pod that is specified for deletion. The pods of the other nodes are updated nevertheless, as those of
// a CloneSet and a StatefulSet are (CS-136, ASTS-136).
func TestAProtectedSpecifiedPodHoldsUpNoUpdate(t *testing.T) {
	for name, option := range map[string]option{"Standard": func(*appsv1beta1.DaemonSet) {}, "in place": inPlace} {
		t.Run(name, func(t *testing.T) {
			s := started(t, makeSet(option), daemonset.Features{}, "n1", "n2", "n3")
			refused := s.forbid("delete", "n2")
			s.edit(t, "n2", func(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "true" })
			s.RunFor(2 * time.Minute)
			s.Edit(image("agent:2"))
			s.RunFor(time.Hour)
			if n := s.with("agent:2"); n < 2 {
				t.Errorf("after an hour %d of 2 other pods are updated; %d requests were refused: %s", n, *refused, s.describe())
			}
		})
	}
}

// ADS-161: a policy protects the old pod of one node, beside which the new one is available, in a rollout with maxSurge 1.
func TestAProtectedOldPodOfASurgeHoldsUpNoOther(t *testing.T) {
	for _, node := range []string{"n1", "n4"} {
		t.Run(node, func(t *testing.T) {
			s := started(t, makeSet(func(set *appsv1beta1.DaemonSet) {
				r := set.Spec.UpdateStrategy.RollingUpdate
				zero, one := intstr.FromInt32(0), intstr.FromInt32(1)
				r.MaxUnavailable, r.MaxSurge = &zero, &one
			}), daemonset.Features{}, "n1", "n2", "n3", "n4")
			refused := s.forbid("delete", node)
			s.Edit(image("agent:2"))
			s.RunFor(time.Hour)
			if n := s.with("agent:2"); n < 4 {
				t.Errorf("after an hour %d of 4 nodes have a new pod; %d requests were refused: %s", n, *refused, s.describe())
			}
		})
	}
}

// A policy protects a pod that is specified for deletion. It takes no place among those that partition leaves to be updated.
func TestAProtectedSpecifiedPodTakesNoPlaceOfThePartition(t *testing.T) {
	s := started(t, makeSet(maxUnavailable(2)), daemonset.Features{}, "n1", "n2", "n3", "n4")
	s.forbid("delete", "n1")
	s.edit(t, "n1", func(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "true" })
	s.RunFor(2 * time.Minute)
	s.Edit(func(set *appsv1beta1.DaemonSet) { image("agent:2")(set); partition(3)(set) })
	s.RunFor(time.Hour)
	if n := s.with("agent:2"); n != 1 {
		t.Errorf("after an hour %d of 1 pod is updated: %s", n, s.describe())
	}
}
