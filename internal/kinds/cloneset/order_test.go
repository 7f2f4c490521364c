package cloneset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// CS-117: cancel, create, delete what was prepared, delete what is specified, scale in: what comes first in
// this order and has something to do ends the pass, though all that follows would have something to do as
// well. No update starts beside it.
func TestTheOrderOfScaling(t *testing.T) {
	one, two := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
	hook := func(mark bool) func(*appsv1beta1.CloneSet) {
		return func(set *appsv1beta1.CloneSet) {
			set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"hold": "on"},
				MarkPodNotReady: mark}}
		}
	}
	throttled := func(set *appsv1beta1.CloneSet) { set.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(1)) }
	specified := func(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "" }
	held := func(pod *corev1.Pod) { pod.Labels["hold"] = "on" }
	down := func(pod *corev1.Pod) {
		notReady(pod)
		pod.Status.Conditions[2].Status, pod.Status.Conditions[2].Message = corev1.ConditionFalse, `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`
	}
	prepared := func(pod *corev1.Pod) { down(pod); clonesettest.InState(pub.LifecycleStatePreparingDelete)(pod) }
	const wait, unready, cancelled, unprepared = "wait: Scaling", "wait: NotReady", "patch: LifecycleHook", "wait: LifecycleHook"
	pods := func(a, b, others string) map[string]string {
		return map[string]string{"a": a, "b": b, "c": others, "d": others}
	}
	for name, test := range map[string]struct {
		replicas int32
		set      func(*appsv1beta1.CloneSet)
		a, b     []func(*corev1.Pod)
		create   int
		want     map[string]string
	}{
		"cancelled before all": {6, hook(false), []func(*corev1.Pod){prepared}, []func(*corev1.Pod){specified, notReady}, 0,
			pods(cancelled, unready, wait)},
		"created before deleted": {6, hook(true), []func(*corev1.Pod){prepared}, []func(*corev1.Pod){specified, notReady}, 2,
			pods(unprepared, unready, wait)},
		"prepared before specified": {1, hook(true), []func(*corev1.Pod){prepared}, []func(*corev1.Pod){specified, notReady}, 0,
			pods("delete: SpecifiedDelete", unready, wait)},
		"specified before too many": {1, hook(true), []func(*corev1.Pod){prepared, held}, []func(*corev1.Pod){specified, notReady}, 0,
			pods(unprepared, "delete: SpecifiedDelete", wait)},
		"too many, by their order": {3, hook(true), nil, []func(*corev1.Pod){notReady}, 0, pods(wait, "delete: ScaleIn", wait)},
		"creation that may make none": {6, clonesettest.Both(hook(true), throttled), []func(*corev1.Pod){prepared}, []func(*corev1.Pod){specified,
			notReady}, 0, pods("delete: SpecifiedDelete", unready, wait)},
	} {
		t.Run(name, func(t *testing.T) {
			set := clonesettest.Set(test.replicas, clonesettest.Image("nginx:2"), clonesettest.MaxUnavailable(4), test.set)
			set.Status.CurrentRevision = one.Name
			plan := planOf(set, Features{}, []*appsv1.ControllerRevision{one, two}, clonesettest.Pod("a", one.Name,
				append([]func(*corev1.Pod){clonesettest.Settled}, test.a...)...),
				clonesettest.Pod("b", one.Name, append([]func(*corev1.Pod){clonesettest.Settled}, test.b...)...), clonesettest.Pod("c", one.Name,
					clonesettest.Settled), clonesettest.Pod("d", one.Name, clonesettest.Settled))
			if diff := cmp.Diff(test.want, clonesettest.Actions(plan.Verdicts)); diff != "" {
				t.Errorf("what is done to the pods (-want +got):\n%s", diff)
			}
			if len(plan.Create) != test.create {
				t.Errorf("number created: got %d, want %d", len(plan.Create), test.create)
			}
		})
	}
}

// CS-149: where all must go, all go, whatever they are like.
func TestAllGoWhereAllMust(t *testing.T) {
	one, two := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
	set := clonesettest.Set(0, clonesettest.Image("nginx:2"))
	set.Status.CurrentRevision = one.Name
	plan := planOf(set, Features{}, []*appsv1.ControllerRevision{one, two}, clonesettest.Pod("a", one.Name, clonesettest.Settled),
		clonesettest.Pod("b", one.Name, clonesettest.Settled, notReady),
		clonesettest.Pod("c", two.Name, clonesettest.Settled), clonesettest.Pod("d", two.Name, clonesettest.Settled, func(pod *corev1.Pod) {
			pod.Spec.NodeName,
				pod.Status.Phase = "", corev1.PodPending
		}),
		clonesettest.Pod("e", two.Name, clonesettest.Settled,
			func(pod *corev1.Pod) { pod.Annotations = map[string]string{pub.PodDeletionCost: "2147483647"} }))
	const goes = "delete: ScaleIn"
	if diff := cmp.Diff(map[string]string{"a": goes, "b": goes, "c": goes, "d": goes, "e": goes},
		clonesettest.Actions(plan.Verdicts)); diff != "" {
		t.Errorf("what is done to the pods (-want +got):\n%s", diff)
	}
}
