package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// CS-276: a rollout that is paused from its beginning changes no pod and adds none, though surge is allowed;
// pods that go are replaced by the revision that goes with the partition, and the deadline does not pass.
func TestAPausedRolloutKeepsItsPods(t *testing.T) {
	deadline := int32(60)
	inPlace, reCreate := appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, appsv1beta1.ReCreateCloneSetPodUpdatePolicy
	for _, test := range []struct {
		policy         appsv1beta1.CloneSetPodUpdatePolicy
		partition, old int
	}{{inPlace, 0, 0}, {inPlace, 2, 2}, {reCreate, 0, 0}, {reCreate, 2, 2}, {reCreate, 3, 3}} {
		s := atRest(t, clonesettest.Set(3, clonesettest.Policy(test.policy), clonesettest.Surge(2, 1), clonesettest.Partition(test.partition),
			func(set *appsv1beta1.CloneSet) { set.Spec.ProgressDeadlineSeconds = &deadline }), cloneset.Features{})
		first := s.set().Status.UpdateRevision
		before := s.active()
		s.Edit(clonesettest.Both(clonesettest.Image("nginx:2"), clonesettest.Paused(true)))
		for range 200 {
			s.Round()
			s.Pass(time.Second)
			if n := len(s.active()); n != 3 {
				t.Fatalf("partition %d: %d pods", test.partition, n)
			}
		}
		for i, pod := range s.active() {
			if pod.UID != before[i].UID {
				t.Errorf("UID of the pod: got %q, want %q; partition %d: %s changed", pod.UID, before[i].UID,
					test.partition, pod.Name)
			} else if pod.Spec.Containers[0].Image != "nginx:1" {
				t.Errorf("image of the first container of the pod: got %q, want %q; partition %d: %s changed",
					pod.Spec.Containers[0].Image, "nginx:1",
					test.partition, pod.Name)
			} else if pod.Labels[pub.ControllerRevisionHash] != before[i].Labels[pub.ControllerRevisionHash] {
				t.Errorf("label controller revision hash of the pod: got %q, want %q; partition %d: %s changed",
					pod.Labels[pub.ControllerRevisionHash],
					before[i].Labels[pub.ControllerRevisionHash], test.partition, pod.Name)
			}
		}
		if c := cloneset.Condition(&s.set().Status, appsv1beta1.CloneSetConditionProgressing); c == nil {
			t.Errorf("c: got nil, want a value; partition %d: %+v", test.partition, c)
		} else if c.Status != corev1.ConditionTrue {
			t.Errorf("status: got %q, want %q; partition %d: %+v", c.Status, corev1.ConditionTrue, test.partition, c)
		} else if c.Reason != "CloneSetPaused" {
			t.Errorf("reason: got %q, want %q; partition %d: %+v", c.Reason, "CloneSetPaused", test.partition, c)
		}
		for _, pod := range before { // somebody drains all nodes
			if err := s.Delete(podKey(pod.Name), pod); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				s.Round()
				s.Pass(time.Second)
			}
		}
		if err := s.Settle(200); err != nil {
			t.Fatal(err)
		}
		old := 0
		for _, pod := range s.active() {
			if slices.ContainsFunc(before, func(b *corev1.Pod) bool { return b.UID == pod.UID }) {
				t.Errorf("partition %d: %s is still there", test.partition, pod.Name)
			}
			if strings.HasSuffix(first, pod.Labels[pub.PodTemplateHash]) != (pod.Spec.Containers[0].Image == "nginx:1") {
				t.Errorf("partition %d: %s of %s has %s", test.partition, pod.Name, pod.Labels[pub.PodTemplateHash],
					pod.Spec.Containers[0].Image)
			}
			if pod.Spec.Containers[0].Image == "nginx:1" {
				old++
			}
		}
		if got := len(s.active()); got != 3 {
			t.Errorf("number active: got %d, want 3; partition %d: %d of %d pods are old", got, test.partition, old,
				len(s.active()))
		}
		if old != test.old {
			t.Errorf("old: got %d, want %d; partition %d: %d of %d pods are old", old, test.old, test.partition, old, len(s.active()))
		}
	}
}
