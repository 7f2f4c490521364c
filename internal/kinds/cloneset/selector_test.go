package cloneset

import (
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// TestASelectorThatLosesItsPods: a selector that asks for labels which controllers set and change made pods
// without end, which were given up as soon as they were there (CS-021 (part)).
func TestASelectorThatLosesItsPods(t *testing.T) {
	for _, key := range []string{pub.LifecycleState, pub.CloneSetInstanceID, pub.ControllerRevisionHash} {
		set := clonesettest.Set(2)
		set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist}}
		plan := Make(Snapshot{Set: set, Snapshot: podplan.Snapshot{Now: clonesettest.Now}, Random: rand.IntN})
		if len(plan.Create) > 0 {
			t.Errorf("%s: created: got %v, want none\n%s", key, plan.Create, plan)
		}
		if plan.UpdateError == "" {
			t.Errorf("%s: update error: got nothing, want some text\n%s", key, plan)
		}
	}
}
