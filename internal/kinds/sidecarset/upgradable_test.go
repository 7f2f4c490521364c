package sidecarset_test

import (
	"testing"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestManyPodsThatCannotBeUpgraded: their revision is compared once, not for each of them.
func TestManyPodsThatCannotBeUpgraded(t *testing.T) {
	s := sidecarsettest.Snapshot(sidecarsettest.Set(func(set *appsv1beta1.SidecarSet) { set.Spec.Containers[0].Command = []string{"x"} }),
		sidecarsettest.Set(), 200)
	plan := sidecarset.Make(s)
	if plan.NotUpgradable != 200 {
		t.Errorf("not upgradable: got %d, want 200", plan.NotUpgradable)
	}
	if got := plan.Comparisons(); got != 1 {
		t.Errorf("comparisons: got %d, want 1", got)
	}
}
