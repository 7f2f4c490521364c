package cloneset

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// huntFew lets so many pods go.
type huntFew struct{ left int }

func (f *huntFew) Take(*corev1.Pod, disruption.Operation) string {
	if f.left--; f.left < 0 {
		return "budget b allows 0 more"
	}
	return ""
}

func huntPlan(budget disruption.Limits, specified string) *Plan {
	one, two := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
	var pods []*corev1.Pod
	for i, name := range []string{"a", "b", "c"} {
		pod := clonesettest.Pod(name, one.Name, clonesettest.Settled, func(pod *corev1.Pod) {
			pod.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:1"}}
		})
		pod.UID = types.UID("uid-" + name)
		pod.Labels[pub.CloneSetInstanceID] = string(rune('x' + i))
		for _, s := range specified {
			if string(s) == name {
				pod.Labels[pub.SpecifiedDelete] = "true"
			}
		}
		pods = append(pods, pod)
	}
	set := clonesettest.Set(3, clonesettest.Image("nginx:2"), clonesettest.Surge(0, 3))
	return Make(Snapshot{Set: set, Snapshot: podplan.Snapshot{Pods: pods, Revisions: []*appsv1.ControllerRevision{one, two},
		Now: clonesettest.Now, Disruptions: budget,
		Refused: map[types.UID]time.Time{"uid-a": clonesettest.Now.Add(-time.Minute)}}, Random: counting()})
}

// A policy refuses the deletion of a, and a budget allows one pod: the others are updated (CS-136: "nor does it hold up updates").
func TestARefusedDeletionTakesTheOnlyPlaceOfTheBudget(t *testing.T) {
	plan := huntPlan(&huntFew{left: 1}, "a")
	for _, v := range plan.Verdicts {
		if v.Action == podplan.UpdateInPlace {
			return
		}
	}
	t.Errorf("a, which cannot be deleted, takes the place of the others in the budget in every pass:\n%s", plan)
}

// The deletion of a is refused by a policy, that of b by a budget. Each alone does not hold up updates (CS-136, PUB-100); nor do both.
func TestARefusedPodAndOneHeldByABudgetHoldUpUpdates(t *testing.T) {
	for _, specified := range []string{"a", "b", "ab"} {
		plan := huntPlan(protects{"b": true}, specified)
		moves := false
		for _, v := range plan.Verdicts {
			moves = moves || v.Action == podplan.UpdateInPlace
		}
		if !moves {
			t.Errorf("specified %q: c is not updated:\n%s", specified, plan)
		}
	}
}
