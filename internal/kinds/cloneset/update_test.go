package cloneset

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// TestAPodWhoseHookLetItGoIsUpdated: where no pod may be unavailable, a pod that prepared its update behind a
// surge pod is updated when its hook lets it go, also if only an annotation changes. It was put back into
// service, and prepared again, for ever (CS-103 (part), CS-361 (part)).
func TestAPodWhoseHookLetItGoIsUpdated(t *testing.T) {
	noted := func(note string) func(*appsv1beta1.CloneSet) {
		return clonesettest.Templated(fmt.Sprintf(`{"metadata":{"labels":{"app":"web","traffic":"on"},"annotations":{"note":%q}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`, note))
	}
	one, two := storedRevision(1, noted("a")), storedRevision(2, noted("b"))
	midway := func(set *appsv1beta1.CloneSet) {
		set.Status.CurrentRevision, set.Status.UpdateRevision = one.Name, two.Name
	}
	got := clonesettest.Actions(planOf(clonesettest.Set(1, noted("b"), clonesettest.UpdateHook(false), clonesettest.Surge(1, 0), midway),
		Features{PreparingUpdateAsUpdate: true},
		[]*appsv1.ControllerRevision{one, two},
		clonesettest.Pod("surge", two.Name, clonesettest.Settled, func(pod *corev1.Pod) { pod.Labels["traffic"] = "on" }),
		// not the surge pod: it was updated before
		clonesettest.Pod("web", one.Name, clonesettest.Settled, clonesettest.InState(pub.LifecycleStatePreparingUpdate), func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"` + one.Name +
				`","updateTimestamp":"2029-01-01T00:00:00Z"}`}
		})).Verdicts)
	if got["web"] != "update in place: Outdated" {
		t.Errorf("web: got %q, want %q\n%v", got["web"], "update in place: Outdated", got)
	}
}
