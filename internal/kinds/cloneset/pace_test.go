package cloneset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// readySince makes a pod ready for that long.
func readySince(ago time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].LastTransitionTime = metav1.NewTime(clonesettest.Now.Add(-ago))
		}
	}
}

func notReady(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

// TestReadyPodsAreNotDeletedAtOnce: pods that are ready, but not for minReadySeconds yet, serve users: of six
// of them maxUnavailable 1 lets one go at a time, whoever asks for their deletion (CS-132, CS-171, CS-172).
func TestReadyPodsAreNotDeletedAtOnce(t *testing.T) {
	one := storedRevision(1, clonesettest.Image("nginx:1"))
	specified := func(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "" }
	fresh, old := readySince(time.Minute), readySince(2*time.Hour)
	tests := map[string]struct {
		replicas int32
		pods     [][]func(*corev1.Pod)
		deleted  int
	}{
		"six fresh ones specified": {6, [][]func(*corev1.Pod){{fresh, specified}, {fresh, specified}, {fresh, specified},
			{fresh, specified}, {fresh, specified}, {fresh, specified}}, 1},
		"those that are not ready go freely": {4, [][]func(*corev1.Pod){{fresh}, {fresh}, {fresh}, {fresh, notReady, specified}}, 1},
		"and take nothing from the others": {4, [][]func(*corev1.Pod){{fresh}, {fresh}, {fresh, specified}, {fresh, notReady, specified}},
			1},
		"an available one keeps its own bound":      {4, [][]func(*corev1.Pod){{old, specified}, {old}, {old}, {fresh}}, 0},
		"a fresh one costs no available one":        {4, [][]func(*corev1.Pod){{old}, {old}, {old}, {fresh, specified}}, 1},
		"scaling in is not held up (#1478)":         {3, [][]func(*corev1.Pod){{fresh}, {fresh}, {fresh}, {fresh}, {fresh}, {fresh}}, 3},
		"scaling in leaves as many as may be ready": {2, [][]func(*corev1.Pod){{fresh}, {notReady}, {notReady}, {notReady}}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for i, options := range tt.pods {
				pods = append(pods, clonesettest.Pod(fmt.Sprintf("web-%d", i), one.Name,
					append([]func(*corev1.Pod){clonesettest.Settled}, options...)...))
			}
			plan := planOf(clonesettest.Set(tt.replicas, clonesettest.MaxUnavailable(1), clonesettest.MinReadySeconds(3600)), Features{},
				[]*appsv1.ControllerRevision{one},
				pods...)
			deleted, serving := 0, 0
			for _, v := range plan.Verdicts {
				count(&deleted, v.Action == podplan.Delete)
				count(&serving, v.Action != podplan.Delete && readiness.Ready(v.Pod))
				if v.Action == podplan.Wait && v.Reason == podplan.ReasonMaxUnavailable && !strings.Contains(v.Message,
					fmt.Sprintf("%d of %d pods must stay", tt.replicas-1, tt.replicas)) {
					t.Errorf("%s", v.Message)
				}
			}
			if deleted != tt.deleted {
				t.Errorf("%d deleted\n%s", deleted, plan)
			}
		})
	}
}

// TestOldReadyPodIsNotScaledIn: the share of old pods is no licence to take the only pod that serves.
func TestOldReadyPodIsNotScaledIn(t *testing.T) {
	one, two := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
	plan := planOf(clonesettest.Set(2, clonesettest.Image("nginx:2"), clonesettest.MaxUnavailable(1), clonesettest.MinReadySeconds(3600),
		clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)), Features{},
		[]*appsv1.ControllerRevision{one, two}, clonesettest.Pod("a", one.Name, clonesettest.Settled, readySince(time.Minute)),
		clonesettest.Pod("b", two.Name, clonesettest.Settled, notReady),
		clonesettest.Pod("c", two.Name, clonesettest.Settled, notReady))
	if got := clonesettest.Actions(plan.Verdicts)["a"]; got != "wait: MaxUnavailable" {
		t.Errorf("%s\n%s", got, plan)
	}
}

// TestScaleInTakesThePodThatIsDown: a pod that prepares its update counts as new when pods are counted, and
// also when one is chosen (CS-115 (part), CS-143 (part)).
func TestScaleInTakesThePodThatIsDown(t *testing.T) {
	hooked := func(pod *corev1.Pod) { pod.Labels["traffic"] = "on" }
	one, two := storedRevision(1, clonesettest.HookedImage("nginx:1")), storedRevision(2, clonesettest.HookedImage("nginx:2"))
	got := clonesettest.Actions(planOf(clonesettest.Set(2, clonesettest.HookedImage("nginx:2"), clonesettest.UpdateHook(false),
		clonesettest.MaxUnavailable(1)), Features{PreparingUpdateAsUpdate: true},
		[]*appsv1.ControllerRevision{one, two},
		clonesettest.Pod("a", two.Name, clonesettest.Settled, hooked), clonesettest.Pod("b", two.Name, clonesettest.Settled, hooked),
		clonesettest.Pod("c", one.Name, clonesettest.Settled, hooked, clonesettest.InState(pub.LifecycleStatePreparingUpdate))).Verdicts)
	if diff := cmp.Diff(map[string]string{"a": "keep: UpToDate", "b": "keep: UpToDate", "c": "delete: ScaleIn"}, got); diff != "" {
		t.Error(diff)
	}
}

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
		t.Errorf("%v", got)
	}
}
