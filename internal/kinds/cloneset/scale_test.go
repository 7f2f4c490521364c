package cloneset

import (
	"fmt"
	"maps"
	"slices"
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

// CS-133: as long as one pod is specified for deletion, or waits for its preDelete hook, no other pod goes
// because there are too many.
func TestScaleInWaitsForWhatIsSpecified(t *testing.T) {
	one := storedRevision(1, clonesettest.Image("nginx:1"))
	hook := func(set *appsv1beta1.CloneSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"hold": "on"}}}
	}
	held := func(pod *corev1.Pod) { pod.Labels["hold"] = "on" }
	specified := func(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "" }
	preparing := func(pod *corev1.Pod) { held(pod); clonesettest.InState(pub.LifecycleStatePreparingDelete)(pod) }
	// Three pods of which none is specified: the two too many go, whichever stand beside the first.
	for name, test := range map[string]struct {
		first []func(*corev1.Pod)
		set   func(*appsv1beta1.CloneSet)
		want  map[string]string
	}{
		"nobody is specified": {nil, hook, map[string]string{"a": "delete: ScaleIn", "b": "delete: ScaleIn",
			"c": "keep: UpToDate"}},
		"one is": {[]func(*corev1.Pod){specified}, hook, map[string]string{"a": "delete: SpecifiedDelete",
			"b": "keep: UpToDate", "c": "keep: UpToDate"}},
		"one is, by its name": {nil, clonesettest.Both(hook, clonesettest.ToDelete("a", "x")), map[string]string{"a": "delete: SpecifiedDelete",
			"b": "keep: UpToDate", "c": "keep: UpToDate"}},
		"one is, and its hook comes first": {[]func(*corev1.Pod){specified, held}, hook, map[string]string{"a": "patch: LifecycleHook",
			"b": "keep: UpToDate", "c": "keep: UpToDate"}},
		"one is, and waits for its hook": {[]func(*corev1.Pod){specified, preparing}, hook, map[string]string{"a": "wait: LifecycleHook",
			"b": "keep: UpToDate", "c": "keep: UpToDate"}},
		"one waits for its hook without being specified": {[]func(*corev1.Pod){preparing, func(pod *corev1.Pod) {
			pod.Status.Conditions[2].Status, pod.Status.Conditions[2].Message = corev1.ConditionFalse, `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`
		}}, clonesettest.Both(hook, func(set *appsv1beta1.CloneSet) {
			set.Spec.Lifecycle.PreDelete.MarkPodNotReady = true // else it would come back
		}), map[string]string{"a": "wait: LifecycleHook", "b": "keep: UpToDate", "c": "keep: UpToDate"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(clonesettest.Set(1, test.set), Features{}, []*appsv1.ControllerRevision{one},
				clonesettest.Pod("a", one.Name, append([]func(*corev1.Pod){clonesettest.Settled}, test.first...)...), clonesettest.Pod("b", one.Name,
					clonesettest.Settled), clonesettest.Pod("c", one.Name, clonesettest.Settled))
			got := clonesettest.Actions(plan.Verdicts)
			if name == "nobody is specified" { // which of the three stays is not this test's
				got = map[string]string{}
				for i, verdict := range slices.Sorted(maps.Values(clonesettest.Actions(plan.Verdicts))) {
					got[string(rune('a'+i))] = verdict
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

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
				if v.Action == podplan.Wait && v.Reason == podplan.ReasonMaxUnavailable && !strings.Contains(v.Message, fmt.Sprintf("%d of %d pods must stay", tt.replicas-1, tt.replicas)) {
					t.Errorf("message: got %q, want it to contain %q", v.Message, fmt.Sprintf("%d of %d pods must stay",
						tt.replicas-1, tt.replicas))
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
		t.Errorf("what is done to pod a: got %q, want %q\n%s", got, "wait: MaxUnavailable", plan)
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
		t.Errorf("(-want +got):\n%s", diff)
	}
}
