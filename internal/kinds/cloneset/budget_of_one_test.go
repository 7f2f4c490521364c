package cloneset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

type protects map[string]bool

func (p protects) Take(pod *corev1.Pod, _ disruption.Operation) string {
	if p[pod.Name] {
		return "budget b allows 0 more"
	}
	return ""
}

// TestABudgetOfOnePodHoldsUpNoOther: whichever pod of three a budget protects, the rollout of the others goes on
// (PUB-100).
func TestABudgetOfOnePodHoldsUpNoOther(t *testing.T) {
	one, two := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
	for _, protected := range []string{"a", "b", "c"} {
		var pods []*corev1.Pod
		for i, name := range []string{"a", "b", "c"} {
			pod := clonesettest.Pod(name, one.Name, clonesettest.Settled, func(pod *corev1.Pod) {
				pod.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:1"}}
			})
			pod.Labels[pub.CloneSetInstanceID] = string(rune('x' + i))
			pods = append(pods, pod)
		}
		set := clonesettest.Set(3, clonesettest.Image("nginx:2"), clonesettest.Surge(0, 1))
		plan := Make(Snapshot{Set: set, Snapshot: podplan.Snapshot{Pods: pods, Revisions: []*appsv1.ControllerRevision{one, two},
			Now: clonesettest.Now, Disruptions: protects{protected: true}}, Random: counting()})
		moves := 0
		for _, v := range plan.Verdicts {
			if v.Action != podplan.Wait && v.Action != podplan.Keep {
				moves++
			}
		}
		if moves == 0 {
			t.Errorf("a budget protects %s, and nothing moves:\n%s", protected, plan)
		}
	}
}
