package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// CS-133: "not for one whose deletion the API server refused". A pod has prepared its deletion, its hook has let it go, and a policy protects it.
// Scaling in takes the others.
func TestAProtectedPreparedPodHoldsUpNoScaleIn(t *testing.T) {
	s := simulate(1, clonesettest.Set(10, clonesettest.MaxUnavailable(2), clonesettest.HookedImage("nginx:1"), func(set *appsv1beta1.CloneSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"traffic": "on"}}}
	}), cloneset.Features{})
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	protected := s.active()[0].Name
	s.Answer = protect(&protected)
	operator := func(d time.Duration) {
		for start := s.Now(); s.Now().Sub(start) < d; s.RunFor(10 * time.Second) {
			for _, pod := range s.active() {
				if pod.Labels[pub.LifecycleState] == string(pub.LifecycleStatePreparingDelete) && pod.Labels["traffic"] != "" {
					s.Change(podKey(pod.Name), func(o client.Object) { delete(o.GetLabels(), "traffic") })
				}
			}
		}
	}
	s.Change(podKey(protected), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
	operator(5 * time.Minute)
	s.Edit(clonesettest.Replicas(5))
	operator(time.Hour)
	if got := len(s.active()); got > 6 {
		t.Errorf("%d pods an hour after scaling from 10 to 5: %s", got, s.describe())
	}
}

// A policy protects a pod that is specified for deletion. A rollout up to a partition takes the others instead, as scaling in does (CS-133, CS-136).
func TestAProtectedSpecifiedPodTakesNoPlaceOfThePartition(t *testing.T) {
	for _, policy := range []appsv1beta1.CloneSetPodUpdatePolicy{appsv1beta1.ReCreateCloneSetPodUpdatePolicy, appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy} {
		for _, partition := range []int{3, 4} {
			t.Run(fmt.Sprint(policy, partition), func(t *testing.T) {
				s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1), clonesettest.Policy(policy)), cloneset.Features{})
				if err := s.Settle(1000); err != nil {
					t.Fatal(err)
				}
				protected := s.active()[0].Name
				s.Answer = protect(&protected)
				s.Change(podKey(protected), func(o client.Object) { o.GetLabels()[pub.SpecifiedDelete] = "true" })
				s.RunFor(2 * time.Minute)
				s.Edit(clonesettest.Both(clonesettest.Image("nginx:2"), clonesettest.Partition(partition)))
				s.RunFor(time.Hour)
				if got := s.set().Status.UpdatedReplicas; int(got) != 5-partition {
					t.Errorf("%d of %d that the partition leaves are updated after an hour: %s", got, 5-partition, s.describe())
				}
			})
		}
	}
}

// A policy protects the only old pod, both from its update and from its deletion. Scaling in takes another pod, although old ones go first (CS-136: "scale-in
// chooses other pods first").
func TestScaleInTakesANewPodIfTheOldOneIsProtected(t *testing.T) {
	s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1)), cloneset.Features{})
	if err := s.Settle(1000); err != nil {
		t.Fatal(err)
	}
	protected := s.active()[0].Name
	s.Answer = func(r *simulation.Request) error {
		if r.Key == podKey(protected) && (r.Verb == "delete" || r.Verb == "patch" && strings.Contains(string(r.Body), `"image"`)) {
			return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
		}
		return nil
	}
	s.Edit(clonesettest.Image("nginx:2"))
	s.RunFor(10 * time.Minute)
	if got := s.set().Status.UpdatedReplicas; got != 4 {
		t.Fatalf("%d of 4 updated", got)
	}
	s.Edit(clonesettest.Replicas(4))
	s.RunFor(time.Hour)
	if got := len(s.active()); got != 4 {
		t.Errorf("%d pods an hour after scaling to 4; %s is protected: %s", got, protected, s.describe())
	}
}
