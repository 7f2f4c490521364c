package cloneset

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
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
				t.Error(diff)
			}
		})
	}
}
