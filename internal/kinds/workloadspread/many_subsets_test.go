package workloadspread

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

func withSubsets(count int) *appsv1beta1.WorkloadSpread {
	spread := workloadspreadtest.Spread()
	spread.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web"}
	for i := range count {
		spread.Spec.Subsets = append(spread.Spec.Subsets, workloadspreadtest.Subset(fmt.Sprint("s", i), 1))
	}
	return spread
}

// WS-033: the number of subsets is limited, but one that was stored with more can still be changed.
func TestTooManySubsets(t *testing.T) {
	for name, c := range map[string]struct {
		subsets, stored int
		admitted        bool
	}{
		"as many as possible":    {200, 0, true},
		"one more":               {201, 0, false},
		"one more than stored":   {201, 200, false},
		"as many as were stored": {300, 300, true},
		"fewer than were stored": {299, 300, true},
		"more than were stored":  {301, 300, false},
	} {
		var old *appsv1beta1.WorkloadSpread
		if c.stored > 0 {
			old = withSubsets(c.stored)
		}
		errs := Validate(withSubsets(c.subsets), old, Environment{})
		if (len(errs) == 0) != c.admitted || len(errs) > 0 && errs[0].Field != "spec.subsets" {
			t.Errorf("%s: got %v, want that it is admitted: %t", name, errs, c.admitted)
		}
	}
}

// WS-154: somebody has 1,000 subsets, stored by an earlier release, and gives each of 200 pods another version. The
// status has a list of all subsets for each version; one of 200,000 entries, which cannot be written, is not made.
func TestVersionsTimesSubsetsAreBounded(t *testing.T) {
	planned := func(subsets, pods int) *Plan {
		spread := withSubsets(subsets)
		s := Snapshot{Spread: spread, Target: &Target{Reference: TargetOf(spread), Exists: true},
			Versioned: ParseVersioned("deployment"), Now: workloadspreadtest.At(0).Time}
		for i := range pods {
			pod := workloadspreadtest.Pod(fmt.Sprint("web-", i), workloadspreadtest.Version(fmt.Sprint("v", i)))
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}}
			s.Pods = append(s.Pods, pod)
		}
		return Make(s)
	}
	if p := planned(200, 100); p.Problem != nil || len(p.Status.Status.VersionedSubsetStatuses) != 100 {
		t.Errorf("200 subsets and 100 versions: got problem %v and %d lists, want a list for each version", p.Problem,
			len(p.Status.Status.VersionedSubsetStatuses))
	}
	if p := planned(1000, 200); p.Problem == nil || p.Reason != ReasonStatusTooLarge || len(p.Status.Status.SubsetStatuses) > 0 {
		t.Errorf("1,000 subsets and 200 versions: got problem %v, reason %q and %d lists, want %s before a list is made", p.Problem,
			p.Reason, len(p.Status.Status.VersionedSubsetStatuses), ReasonStatusTooLarge)
	}
}
