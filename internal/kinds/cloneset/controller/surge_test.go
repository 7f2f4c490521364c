package controller

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// TestSurgePodThatNeverComesUpIsReplaced: an old pod is to be deleted and may only go when another one is
// ready. Its stand-in has an image that cannot be pulled, and the user corrects the image: the stand-in gets
// it. Otherwise both would wait for each other for ever (CS-120, CS-126).
func TestSurgePodThatNeverComesUpIsReplaced(t *testing.T) {
	for name, policy := range map[string]appsv1beta1.CloneSetPodUpdatePolicy{
		"recreated": appsv1beta1.ReCreateCloneSetPodUpdatePolicy, "in place": appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy} {
		t.Run(name, func(t *testing.T) {
			s := atRest(t, clonesettest.Set(1, clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) {
				r.PodUpdatePolicy, r.MaxUnavailable, r.MaxSurge = policy, new(intstr.FromInt32(0)), new(intstr.FromInt32(1))
			})), cloneset.Features{})
			s.Node.Digests["nginx:bad"] = ""
			old := s.active()[0].Name
			s.Edit(clonesettest.Image("nginx:bad"))
			if err := s.Settle(300); err != nil {
				t.Fatal(err)
			}
			s.Change(podKey(old), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
			if err := s.Settle(300); err != nil {
				t.Fatal(err)
			}
			if pods := s.active(); len(pods) != 2 {
				t.Fatalf("%d pods, not a ready one and its stand-in", len(pods))
			}
			s.Edit(clonesettest.Image("nginx:2"))
			if err := s.Settle(300); err != nil {
				t.Fatal(err)
			}
			pods := s.active()
			if len(pods) != 1 {
				t.Errorf("not one ready pod of the corrected image: number of pods: got %d, want 1\n%s", len(pods),
					s.describe())
			} else if !readiness.Ready(pods[0]) {
				t.Errorf("not one ready pod of the corrected image: the first pod is ready: got false, want true\n%s",
					s.describe())
			} else if pods[0].Name == old {
				t.Errorf("not one ready pod of the corrected image: name of the first pod: got %q, want another value\n%s", pods[0].Name, s.describe())
			} else if pods[0].Spec.Containers[0].Image != "nginx:2" {
				t.Errorf("not one ready pod of the corrected image: image of the first container of the first pod: got %q, want %q\n%s",
					pods[0].Spec.Containers[0].Image, "nginx:2", s.describe())
			}
		})
	}
}

// TestSurgePodThatNeverComesUpIsReplacedDespitePriority: pods that are to be updated first may only go when
// another one is ready. The pod above the replicas has an image that cannot be pulled, and the user corrects
// the image: that pod gets it first (CS-123, CS-125 (part)).
func TestSurgePodThatNeverComesUpIsReplacedDespitePriority(t *testing.T) {
	s := atRest(t, clonesettest.Set(2, labelled("gold", "nginx:1"), clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) {
		r.PodUpdatePolicy, r.MaxUnavailable, r.MaxSurge = appsv1beta1.ReCreateCloneSetPodUpdatePolicy, new(intstr.FromInt32(0)),
			new(intstr.FromInt32(1))
		r.PriorityStrategy = &pub.UpdatePriorityStrategy{WeightPriority: []pub.UpdatePriorityWeightTerm{
			{Weight: 50, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}}}
	})), cloneset.Features{})
	s.Node.Digests["nginx:bad"] = ""
	for _, change := range []func(*appsv1beta1.CloneSet){labelled("silver", "nginx:bad"), labelled("silver", "nginx:2")} {
		s.Edit(change)
		if err := s.Settle(300); err != nil {
			t.Fatal(err)
		}
	}
	pods := s.active()
	if len(pods) != 2 {
		t.Errorf("not two ready pods of the corrected image: number of pods: got %d, want 2\n%s", len(pods),
			s.describe())
	}
	if !slices.ContainsFunc(pods, readiness.Ready) {
		t.Errorf("not two ready pods of the corrected image: a pod is ready: got false, want true\n%s",
			s.describe())
	}
	if got := s.set().Status.UpdatedAvailableReplicas; got != 2 {
		t.Errorf("not two ready pods of the corrected image: updated and available replicas: got %d, want 2\n%s",
			got, s.describe())
	}
}

// TestHookedPodsGetAnnotationsWhereNothingMayBeUnavailable: changed annotations stop nothing, but an
// inPlaceUpdate hook takes the pod out of service for them, so that it needs a stand-in (CS-102,
// IPU-308 (part)).
func TestHookedPodsGetAnnotationsWhereNothingMayBeUnavailable(t *testing.T) {
	noted := func(note string) func(*appsv1beta1.CloneSet) {
		return func(set *appsv1beta1.CloneSet) {
			clonesettest.SetTemplate(set, fmt.Sprintf(`{"metadata":{"labels":{"app":"web","hook/update":"on","hook/delete":"on"},"annotations":{"note":%q}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`, note))
			set.Spec.Lifecycle = hooks(false)
		}
	}
	s := simulate(1, clonesettest.Set(2, noted("a"), clonesettest.Rolling(func(r *appsv1beta1.RollingUpdateCloneSetStrategy) {
		r.MaxUnavailable, r.MaxSurge = new(intstr.FromInt32(0)), new(intstr.FromInt32(1))
	})), cloneset.Features{})
	run := &rolloutRun{simulated: s, hooked: true}
	s.Others = func() bool { return slices.ContainsFunc(s.active(), run.operate) }
	for _, note := range []string{"a", "b"} {
		s.Edit(noted(note))
		if err := s.Settle(300); err != nil {
			t.Fatal(err)
		}
	}
	status := s.set().Status
	if status.UpdatedAvailableReplicas != 2 {
		t.Errorf("updated and available replicas: got %d, want 2\n%+v\n%s", status.UpdatedAvailableReplicas,
			status, s.describe())
	}
	if status.Replicas != 2 {
		t.Errorf("replicas: got %d, want 2\n%+v\n%s", status.Replicas, status, s.describe())
	}
}
