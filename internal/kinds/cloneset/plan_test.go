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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// planOf plans a world of pods and revisions.
func planOf(set *appsv1beta1.CloneSet, features Features, revisions []*appsv1.ControllerRevision, pods ...*corev1.Pod) *Plan {
	for i, pod := range pods {
		pod.Labels[pub.CloneSetInstanceID] = fmt.Sprintf("id%d", i)
	}
	return Make(Snapshot{Set: set, Snapshot: podplan.Snapshot{Pods: pods, Revisions: revisions, Now: clonesettest.Now}, Random: counting(),
		Features: features})
}

// Small worlds, each with the verdicts that its requirement asks for.
func TestEachPodGetsTheVerdictOfItsRequirement(t *testing.T) {
	one, two, three := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2")),
		storedRevision(3, clonesettest.Image("nginx:3"))
	all := []*appsv1.ControllerRevision{one, two}
	at := func(r *appsv1.ControllerRevision, image string, options ...func(*corev1.Pod)) func(name string) *corev1.Pod {
		return func(name string) *corev1.Pod {
			return clonesettest.Pod(name, r.Name, append([]func(*corev1.Pod){clonesettest.Settled, func(pod *corev1.Pod) {
				pod.Spec.Containers = []corev1.Container{{Name: "nginx", Image: image}}
			}}, options...)...)
		}
	}
	old, newPod := at(one, "nginx:1"), at(two, "nginx:2")
	second := clonesettest.Image("nginx:2")
	holding := func(key string) func(*appsv1beta1.CloneSet) {
		return func(set *appsv1beta1.CloneSet) {
			hook := &pub.LifecycleHook{LabelsHandler: map[string]string{key: "on"}, MarkPodNotReady: true}
			set.Spec.Lifecycle = &pub.Lifecycle{InPlaceUpdate: hook, PreDelete: hook}
		}
	}
	tests := map[string]struct {
		set       *appsv1beta1.CloneSet
		features  Features
		revisions []*appsv1.ControllerRevision
		pods      map[string]func(string) *corev1.Pod
		want      map[string]string
	}{
		"IPU-030 a revision that is not stored any more": {clonesettest.Set(1, second), Features{}, all[1:],
			map[string]func(string) *corev1.Pod{"a": old},
			map[string]string{"a": "recreate: Outdated"}},
		"IPU-041 revisions that differ beside the template": {clonesettest.Set(1, second), Features{}, []*appsv1.ControllerRevision{{
			ObjectMeta: one.ObjectMeta, Revision: 1, Data: runtime.RawExtension{Raw: []byte(strings.Replace(string(one.Data.Raw),
				`{"spec":{`, `{"more":1,"spec":{`, 1))}}, two},
			map[string]func(string) *corev1.Pod{"a": old}, map[string]string{"a": "recreate: Outdated"}},
		"CS-053 a missing label is patched": {clonesettest.Set(1, second), Features{}, all, map[string]func(string) *corev1.Pod{
			"a": at(two, "nginx:2", func(pod *corev1.Pod) {
				delete(pod.Labels,
					pub.PodTemplateHash)
			})}, map[string]string{"a": "patch: MissingLabel"}},
		"CS-070, CS-072, CS-117 (part) no update while pods are made": {clonesettest.Set(3, second), Features{}, all,
			map[string]func(string) *corev1.Pod{"a": old, "b": old},
			map[string]string{"a": "wait: Scaling", "b": "wait: Scaling"}},
		"CS-117 (part) no update while pods are deleted": {clonesettest.Set(1, second), Features{}, all,
			map[string]func(string) *corev1.Pod{"a": old, "b": old},
			map[string]string{"a": "delete: ScaleIn", "b": "wait: Scaling"}},
		"CS-087 pods of still older revisions are updated like others": {clonesettest.Set(2, clonesettest.Image("nginx:3"),
			clonesettest.MaxUnavailable(2)), Features{},
			[]*appsv1.ControllerRevision{one, two, three}, map[string]func(string) *corev1.Pod{"a": old, "b": newPod},
			map[string]string{"a": "update in place: Outdated", "b": "update in place: Outdated"}},
		"CS-121, CS-124 the budget is maxUnavailable and what is above the replicas": {clonesettest.Set(2, second), Features{}, all,
			map[string]func(string) *corev1.Pod{"a": old, "b": old}, map[string]string{"a": "update in place: Outdated",
				"b": "wait: UpdatedPodsUnavailable"}},
		"CS-123 neither PreparingDelete nor in grace": {clonesettest.Set(3, second, clonesettest.MaxUnavailable(3), holding("x")), Features{},
			all,
			map[string]func(string) *corev1.Pod{
				"a": at(one, "nginx:1", clonesettest.InState(pub.LifecycleStatePreparingDelete),
					func(pod *corev1.Pod) { pod.Labels["x"] = "on"; pod.Labels[pub.SpecifiedDelete] = "" }),
				"b": at(one, "nginx:1", func(pod *corev1.Pod) {
					pod.Annotations = map[string]string{pub.InPlaceUpdateGrace: `{"revision":"` + one.Name + `","graceSeconds":60}`,
						pub.InPlaceUpdateState: `{"revision":"` + one.Name + `","updateTimestamp":"` + clonesettest.Now.Format(time.RFC3339) +
							`","lastContainerStatuses":null}`}
				}), "c": old}, map[string]string{"a": "patch: InPlaceUpdateComplete", "b": "wait: GracePeriod", "c": "update in place: Outdated"}},
		"IPU-153 PreparingDelete is never updated, though nobody else is to be": {clonesettest.Set(1, second, holding("x")), Features{}, all,
			map[string]func(string) *corev1.Pod{
				"a": at(one, "nginx:1", clonesettest.InState(pub.LifecycleStatePreparingDelete), func(pod *corev1.Pod) {
					pod.Labels["x"], pod.Labels[pub.SpecifiedDelete] = "on", ""
					pod.Status.Conditions[2].Status, pod.Status.Conditions[2].Message = corev1.ConditionFalse, `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`
				})}, map[string]string{"a": "wait: LifecycleHook"}},
		"IPU-153 nor is its update continued": {clonesettest.Set(1, second, holding("x")), Features{}, all, map[string]func(string) *corev1.Pod{
			"a": at(one, "nginx:1", clonesettest.InState(pub.LifecycleStatePreparingDelete), func(pod *corev1.Pod) {
				pod.Labels["x"], pod.Labels[pub.SpecifiedDelete] = "on", ""
				pod.Annotations = map[string]string{pub.InPlaceUpdateGrace: `{"revision":"` + one.Name + `","graceSeconds":1}`}
				pod.Status.Conditions[2].Status, pod.Status.Conditions[2].Message = corev1.ConditionFalse, `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`
			})}, map[string]string{"a": "wait: LifecycleHook"}},
		"IPU-156 the entry of a hook is asserted again while the state lasts": {clonesettest.Set(1, second, holding("x")), Features{}, all,
			map[string]func(string) *corev1.Pod{
				"a": at(one, "nginx:1", clonesettest.InState(pub.LifecycleStatePreparingUpdate), func(pod *corev1.Pod) { pod.Labels["x"] = "on" })},
			map[string]string{"a": "patch: InPlaceUpdateComplete"}},
		"IPU-012, IPU-120 OnDelete still admits a pod whose update is complete": {clonesettest.Set(1, second, func(set *appsv1beta1.CloneSet) {
			set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteCloneSetUpdateStrategyType
		}), Features{}, all, map[string]func(string) *corev1.Pod{"a": at(two, "nginx:2", clonesettest.InState(pub.LifecycleStateUpdating))},
			map[string]string{"a": "patch: InPlaceUpdateComplete"}},
		"IPU-120 one that is admitted now is unavailable still: no other one is taken out": {clonesettest.Set(2, second), Features{}, all,
			map[string]func(string) *corev1.Pod{
				"a": at(two, "nginx:2", clonesettest.InState(pub.LifecycleStateUpdating)), "b": old},
			map[string]string{"a": "patch: InPlaceUpdateComplete", "b": "wait: UpdatedPodsUnavailable"}},
		"IPU-120 but within the budget one is, in the same pass": {clonesettest.Set(3, second, clonesettest.MaxUnavailable(2)), Features{}, all,
			map[string]func(string) *corev1.Pod{
				"a": at(two, "nginx:2", clonesettest.InState(pub.LifecycleStateUpdating)), "b": old, "c": newPod},
			map[string]string{"a": "patch: InPlaceUpdateComplete", "b": "update in place: Outdated", "c": "keep: UpToDate"}},
		"IPU-120 refreshed without any update that is due": {clonesettest.Set(2, second), Features{}, all, map[string]func(string) *corev1.Pod{
			"a": at(two, "nginx:2", clonesettest.InState(pub.LifecycleStateUpdating)), "b": newPod},
			map[string]string{"a": "patch: InPlaceUpdateComplete", "b": "keep: UpToDate"}},
		"CS-116 by the flag a pod that waits in PreparingDelete is replaced at once": {clonesettest.Set(1, holding("x")),
			Features{ExcludePreparingDelete: true}, all[:1], map[string]func(string) *corev1.Pod{
				"a": at(one, "nginx:1", clonesettest.InState(pub.LifecycleStatePreparingDelete), func(pod *corev1.Pod) {
					pod.Labels["x"], pod.Labels[pub.SpecifiedDelete] = "on", ""
					pod.Status.Conditions[2].Status, pod.Status.Conditions[2].Message = corev1.ConditionFalse, `[{"userAgent":"Lifecycle","key":"preDeleteHook"}]`
				})}, map[string]string{"a": "wait: LifecycleHook", "+": "created"}},
		"IPU-120 paused: the same": {clonesettest.Set(1, second, clonesettest.Paused(true)), Features{}, all, map[string]func(string) *corev1.Pod{
			"a": at(two, "nginx:2", clonesettest.InState(pub.LifecycleStateUpdating))}, map[string]string{"a": "patch: InPlaceUpdateComplete"}},
		"IPU-173 one that cannot be updated in place does not hold up others": {clonesettest.Set(2, second,
			clonesettest.Policy(appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy), clonesettest.MaxUnavailable(2)),
			Features{}, []*appsv1.ControllerRevision{storedRevision(1, clonesettest.Env("x")), one, two}, map[string]func(string) *corev1.Pod{
				"a": at(storedRevision(1, clonesettest.Env("x")),
					"nginx:1"), "b": old}, map[string]string{"a": "wait: InPlaceImpossible", "b": "update in place: Outdated"}},
		"CS-126 a pod that waits for its deletion uses up a move, so that its successor is not replaced in its place": {
			clonesettest.Set(4, second, clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy), clonesettest.Partition(2),
				clonesettest.Surge(2, 0),
				func(set *appsv1beta1.CloneSet) {
					set.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(1))
				}), Features{}, all, map[string]func(string) *corev1.Pod{"a": at(one, "nginx:1", func(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "" }),
				"b": old, "c": at(one, "nginx:1", func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse })},
			map[string]string{"a": "wait: MaxUnavailable", "b": "keep: Partition", "c": "keep: Partition"}},
		"CS-140, CS-141 without surge a rollout does not change who goes first": {clonesettest.Set(3, second, clonesettest.Partition(1),
			func(set *appsv1beta1.CloneSet) { set.Status.CurrentRevision = one.Name }),
			Features{}, all, map[string]func(string) *corev1.Pod{"a": old, "c": newPod, "d": newPod,
				"b": at(two, "nginx:2", func(pod *corev1.Pod) {
					pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"` + two.Name + `","updateTimestamp":"` +
						clonesettest.Now.Format(time.RFC3339) + `","lastContainerStatuses":null}`}
					pod.Status.Conditions[0].Status = corev1.ConditionFalse
				})}, map[string]string{"a": "wait: Scaling", "b": "delete: ScaleIn", "c": "keep: UpToDate", "d": "keep: UpToDate"}},
		"IPU-176 as many as the budget at once": {clonesettest.Set(3, second, clonesettest.MaxUnavailable(3)), Features{}, all,
			map[string]func(string) *corev1.Pod{"a": old, "b": old, "c": old},
			map[string]string{"a": "update in place: Outdated", "b": "update in place: Outdated", "c": "update in place: Outdated"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for pod, make := range tt.pods {
				pods = append(pods, make(pod))
			}
			plan := planOf(tt.set, tt.features, tt.revisions, pods...)
			got := clonesettest.Actions(plan.Verdicts)
			if len(plan.Create) > 0 && tt.want["+"] != "" {
				got["+"] = "created"
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHookWritesOnce: the state and the entry that holds the pod not ready are one patch, so that none comes
// without the other (IPU-156).
func TestHookWritesOnce(t *testing.T) {
	one, two := storedRevision(1, clonesettest.HookedImage("nginx:1")), storedRevision(2, clonesettest.HookedImage("nginx:2"))
	pod := clonesettest.Pod("a", one.Name, clonesettest.Settled, func(pod *corev1.Pod) { pod.Labels["traffic"] = "on" })
	plan := planOf(clonesettest.Set(1, clonesettest.UpdateHook(true), clonesettest.HookedImage("nginx:2")), Features{},
		[]*appsv1.ControllerRevision{one, two}, pod)
	patch := plan.Verdicts[0].Patch
	if got := patch.Subresource(); got != "status" {
		t.Errorf("subresource of the patch: got %q, want %q", got, "status")
	}
	if !strings.Contains(patch.String(), "KruisePodReady=False") {
		t.Errorf("patch: got %q, want it to contain %q", patch.String(), "KruisePodReady=False")
	}
	if !strings.Contains(patch.String(), "state=PreparingUpdate") {
		t.Errorf("patch: got %q, want it to contain %q", patch.String(), "state=PreparingUpdate")
	}
}

// Of all that time alone will change, the first counts (CS-076).
func TestTheFirstOfAllTimesCounts(t *testing.T) {
	one := storedRevision(1, clonesettest.Image("nginx:1"))
	ready := func(ago time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(clonesettest.Now.Add(-ago))
		}
	}
	deadline := int32(600)
	set := clonesettest.Set(2, func(set *appsv1beta1.CloneSet) {
		set.Spec.MinReadySeconds, set.Spec.ProgressDeadlineSeconds = 60, &deadline
	})
	plan := planOf(set, Features{}, []*appsv1.ControllerRevision{one},
		clonesettest.Pod("a", one.Name, clonesettest.Settled, ready(10*time.Second)),
		clonesettest.Pod("b", one.Name, clonesettest.Settled, ready(50*time.Second)))
	if plan.After < 10*time.Second {
		t.Errorf("time to the next pass: got %v, want at least %v", plan.After, 10*time.Second)
	}
	if plan.After > 11*time.Second {
		t.Errorf("time to the next pass: got %v, want at most %v", plan.After, 11*time.Second)
	}
}

// TestDeadlineStopsNothing: an exceeded deadline changes nothing but the condition (CS-230).
func TestDeadlineStopsNothing(t *testing.T) {
	one, two := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
	deadline := int32(60)
	set := clonesettest.Set(2, clonesettest.Image("nginx:2"), func(set *appsv1beta1.CloneSet) {
		set.Spec.ProgressDeadlineSeconds = &deadline
		set.Status.Conditions = []appsv1beta1.CloneSetCondition{*progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded",
			-time.Minute, -time.Minute)}
	})
	plan := planOf(set, Features{}, []*appsv1.ControllerRevision{one, two}, clonesettest.Pod("a", one.Name, clonesettest.Settled),
		clonesettest.Pod("b", two.Name, clonesettest.Settled))
	if got := clonesettest.Actions(plan.Verdicts)["a"]; got != "update in place: Outdated" {
		t.Errorf(`what is done to pod a: got %q, want %q`, got, "update in place: Outdated")
	}
}

// Labels of the template and the hash; annotations of the set, the fingerprint and the claim templates; the
// set as its owner (CS-082, CS-336, IPU-045).
func TestANewRevisionHoldsHashAnnotationsAndOwner(t *testing.T) {
	set := clonesettest.Set(1, clonesettest.Claims("1Gi"), clonesettest.Annotated("team", "shop"))
	revision := planFor(set).NewRevision
	if diff := cmp.Diff(map[string]string{"app": "web", pub.RevisionHash: revision.Name[len("web-"):]}, revision.Labels); diff != "" {
		t.Errorf("labels of the revision (-want +got):\n%s", diff)
	}
	if revision.Annotations["team"] != "shop" {
		t.Errorf(`annotation team of the revision: got %q, want %q; annotations %v`, revision.Annotations["team"], "shop", revision.Annotations)
	}
	if revision.Annotations[pub.ClaimTemplateFingerprint] == "" {
		t.Errorf("annotation claim template fingerprint of the revision: got nothing, want some text; annotations %v", revision.Annotations)
	}
	if !strings.Contains(revision.Annotations[pub.ClaimTemplates], `"1Gi"`) {
		t.Errorf("annotation claim templates of the revision: got %q, want it to contain %q; annotations %v",
			revision.Annotations[pub.ClaimTemplates], `"1Gi"`, revision.Annotations)
	}
	if owner := metav1.GetControllerOf(revision); owner == nil {
		t.Error("owner: got nil, want a value")
	} else if owner.Kind != "CloneSet" {
		t.Errorf("kind of the owner: got %q, want %q; owner %v", owner.Kind, "CloneSet", owner)
	} else if owner.UID != set.UID {
		t.Errorf("UID of the owner: got %q, want %q; owner %v", owner.UID, set.UID, owner)
	}
	none := planFor(clonesettest.Set(1)).NewRevision.Annotations
	if none[pub.ClaimTemplateFingerprint] != "" {
		t.Errorf("without claims: annotation claim template fingerprint: got %q, want %q\n%v", none[pub.ClaimTemplateFingerprint], "", none)
	}
	if !slices.Contains([]string{"[]"}, none[pub.ClaimTemplates]) {
		t.Errorf("without claims: annotation claim templates: got %q, want one of %q\n%v", none[pub.ClaimTemplates], []string{"[]"}, none)
	}
}

// TestAnnotationsFillTheirRoom: a set whose annotations fill the room that the API server gives them, and one
// with that many claim templates, roll out all the same; what a revision needs itself comes first (CS-082,
// CS-336 (part)).
func TestAnnotationsFillTheirRoom(t *testing.T) {
	const room = 256 << 10
	many := func(set *appsv1beta1.CloneSet) {
		claim := clonesettest.ClaimTemplate("data", "1Gi").PersistentVolumeClaim
		claim.Annotations = map[string]string{"note": strings.Repeat("x", room)}
		set.Spec.VolumeClaimTemplates = template.VolumeClaimTemplates{template.FromPersistentVolumeClaim(claim)}
	}
	for name, change := range map[string]func(*appsv1beta1.CloneSet){"annotations": clonesettest.Annotated("note",
		strings.Repeat("x", room-10)),
		"claim templates": many} {
		set := clonesettest.Set(1, clonesettest.Claims("1Gi"), change)
		made, full := planFor(set).NewRevision, storedRevision(1, clonesettest.Image("nginx:2"))
		full.Annotations["note"] = strings.Repeat("x", room-1000)
		raised := Make(Snapshot{Set: clonesettest.Set(1, clonesettest.Image("nginx:2"), clonesettest.Claims("1Gi"), change),
			Random: func(int) int { return 0 },
			Snapshot: podplan.Snapshot{Now: clonesettest.Now,
				Revisions: []*appsv1.ControllerRevision{full, storedRevision(2, clonesettest.Image("nginx:1"))}}})
		after := maps.Clone(raised.Renumber.Annotations)
		for key, value := range raised.Remembered {
			after[key], _ = value.(string)
		}
		for what, annotations := range map[string]map[string]string{"a new revision": made.Annotations, "a raised one": after} {
			size := 0
			for key, value := range annotations {
				size += len(key) + len(value)
			}
			if size > room {
				t.Errorf("%s, %s: size: got %d, want at most %d", name, what, size, room)
			}
			if annotations[pub.ClaimTemplateFingerprint] == "" {
				t.Errorf("%s, %s: annotation claim template fingerprint: got nothing, want some text", name, what)
			}
		}
		if name == "annotations" && !strings.Contains(made.Annotations[pub.ClaimTemplates], "1Gi") {
			t.Error("the claim templates are not remembered")
		}
	}
}

// With the gate a changed fingerprint recreates, unless one lacks it (IPU-046) or the policy is InPlaceOnly
// (IPU-048); without the gate it does nothing (IPU-047). A rollback takes the present one (IPU-050).
func TestAChangedFingerprintOfClaimsRecreatesByTheGate(t *testing.T) {
	stamped := func(number int64, tag, fingerprint string) *appsv1.ControllerRevision {
		revision := storedRevision(number, clonesettest.Image(tag))
		revision.Annotations = map[string]string{pub.ClaimTemplateFingerprint: fingerprint}
		if fingerprint == "none" {
			revision.Annotations = nil
		}
		return revision
	}
	gate := Features{RecreateOnClaimChange: true}
	only := clonesettest.Policy(appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy)
	tests := map[string]struct {
		features Features
		from, to string
		change   func(*appsv1beta1.CloneSet)
		want     podplan.Action
	}{
		"IPU-046 changed":       {gate, "1", "2", clonesettest.Image("nginx:2"), podplan.Recreate},
		"IPU-046 the same":      {gate, "1", "1", clonesettest.Image("nginx:2"), podplan.UpdateInPlace},
		"IPU-046 from nothing":  {gate, "", "2", clonesettest.Image("nginx:2"), podplan.Recreate},
		"IPU-046 one lacks it":  {gate, "none", "2", clonesettest.Image("nginx:2"), podplan.UpdateInPlace},
		"IPU-047 gate off":      {Features{}, "1", "2", clonesettest.Image("nginx:2"), podplan.UpdateInPlace},
		"IPU-048 in place only": {gate, "1", "2", clonesettest.Both(clonesettest.Image("nginx:2"), only), podplan.UpdateInPlace},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			one, two := stamped(1, "nginx:1", tt.from), stamped(2, "nginx:2", tt.to)
			plan := planOf(clonesettest.Set(1, tt.change), tt.features, []*appsv1.ControllerRevision{one, two},
				clonesettest.Pod("a", one.Name, clonesettest.Settled))
			if got := plan.Verdicts[0].Action; got != tt.want {
				t.Errorf("action of the first verdict: got %q, want %q\n%s", got, tt.want, plan.Verdicts[0].Message)
			}
		})
	}
	t.Run("IPU-050 a rollback", func(t *testing.T) {
		one, two := stamped(1, "nginx:1", "1"), stamped(2, "nginx:2", "2")
		set := clonesettest.Set(1, clonesettest.Claims("3Gi"))
		plan := planOf(set, gate, []*appsv1.ControllerRevision{one, two}, clonesettest.Pod("a", two.Name, clonesettest.Settled))
		if plan.Renumber != one {
			t.Errorf("renumbered revision: got %v, want %v", plan.Renumber, one)
		}
		if plan.NewNumber != 3 {
			t.Errorf("new number: got %d, want 3", plan.NewNumber)
		}
		if plan.ClaimFingerprint == "1" {
			t.Errorf("claim fingerprint: got %q, want another value", plan.ClaimFingerprint)
		}
		if plan.ClaimFingerprint == "" {
			t.Error("claim fingerprint: got nothing, want some text")
		}
		if !strings.Contains(fmt.Sprint(plan.Remembered[pub.ClaimTemplates]), "3Gi") {
			t.Errorf("remembered claim templates: got %q, want it to contain %q", fmt.Sprint(plan.Remembered[pub.ClaimTemplates]),
				"3Gi")
		}
	})
}

// TestClaimsWithoutReuse: handed to what is left of their pod, or deleted (CS-064), and new pods have fresh
// names (CS-065).
func TestClaimsWithoutReuse(t *testing.T) {
	set := clonesettest.Set(1, clonesettest.Claims("1Gi"), func(set *appsv1beta1.CloneSet) { set.Spec.ScaleStrategy.EnablePVCReuse = false })
	one := storedRevision(1, clonesettest.Image("nginx:1"))
	claim := func(id string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-web-" + id,
			Labels: map[string]string{pub.CloneSetInstanceID: id}}}
	}
	failed := clonesettest.Pod("web-left", one.Name, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		pod.Labels[pub.CloneSetInstanceID] = "left"
	})
	plan := Make(Snapshot{Set: set, Claims: []*corev1.PersistentVolumeClaim{claim("left"), claim("lost")},
		Snapshot: podplan.Snapshot{Pods: []*corev1.Pod{failed}, Revisions: []*appsv1.ControllerRevision{one},
			Now: clonesettest.Now}, Random: func(int) int { return 1 }})
	var fates []string
	for _, fate := range plan.ClaimFates {
		to := "deleted"
		if fate.HandTo != nil {
			to = fate.HandTo.Name
		}
		fates = append(fates, fate.Claim.Name+" "+to)
	}
	if diff := cmp.Diff([]string{"data-web-left web-left", "data-web-lost deleted"}, fates); diff != "" {
		t.Errorf("fates (-want +got):\n%s", diff)
	}
	if len(plan.Create) != 1 {
		t.Errorf("number created: got %d, want 1\n%+v", len(plan.Create), plan.Create)
	} else if strings.TrimPrefix(plan.Create[0].Name, "web-") != "ccccc" {
		t.Errorf("suffix of the name of the first created pod: got %q, want %q\n%+v", strings.TrimPrefix(plan.Create[0].Name, "web-"),
			"ccccc", plan.Create)
	}
	// Whose a claim is when its pod is active, inactive in any way, or somebody else's; whatever the label of
	// the pod says.
	named := func(name string, options ...func(*corev1.Pod)) *corev1.Pod {
		return clonesettest.Pod(name, one.Name, options...)
	}
	relabelled := func(pod *corev1.Pod) { pod.Labels[pub.CloneSetInstanceID] = "other" }
	in := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase = phase }
	}
	going := func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: clonesettest.Now} }
	foreign := func(pod *corev1.Pod) {
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "CloneSet", Name: "else", UID: "else", Controller: &yes}}
	}
	for name, tt := range map[string]struct {
		pods, strangers []*corev1.Pod
		age             time.Duration
		want            string
	}{
		"active":                {[]*corev1.Pod{named("web-x", relabelled)}, nil, time.Hour, ""},
		"failed":                {[]*corev1.Pod{named("web-x", relabelled, in(corev1.PodFailed))}, nil, time.Hour, "web-x"},
		"succeeded":             {[]*corev1.Pod{named("web-x", in(corev1.PodSucceeded))}, nil, time.Hour, "web-x"},
		"terminating":           {[]*corev1.Pod{named("web-x", going)}, nil, time.Hour, "web-x"},
		"of another controller": {nil, []*corev1.Pod{named("web-x", foreign)}, time.Hour, "web-x"},
		"of another name, by its label": {[]*corev1.Pod{named("mine", func(pod *corev1.Pod) { pod.Labels[pub.CloneSetInstanceID] = "x" },
			going)}, nil, time.Hour, "mine"},
		"none, a minute after the claim":           {nil, nil, time.Minute, "deleted"},
		"none, less than a minute after the claim": {nil, nil, time.Minute - time.Second, ""},
		"another one, whose label says it is its": {[]*corev1.Pod{named("web-y",
			func(pod *corev1.Pod) { pod.Labels[pub.CloneSetInstanceID] = "x" })}, nil, time.Hour, "deleted"},
	} {
		of := claim("x")
		of.CreationTimestamp = metav1.NewTime(clonesettest.Now.Add(-tt.age))
		plan := Make(Snapshot{Set: set, ForeignPods: tt.strangers, Claims: []*corev1.PersistentVolumeClaim{of},
			Snapshot: podplan.Snapshot{Pods: tt.pods, Revisions: []*appsv1.ControllerRevision{one}, Now: clonesettest.Now}, Random: counting()})
		got := ""
		for _, fate := range plan.ClaimFates {
			if got = "deleted"; fate.HandTo != nil {
				got = fate.HandTo.Name
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// No grace unless it is asked for (IPU-013, IPU-171), and the revision labels of every style (IPU-170).
func TestThereIsNoGraceUnlessItIsAskedFor(t *testing.T) {
	one, two := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
	graceful := clonesettest.InPlaceGrace(7)
	for name, tt := range map[string]struct {
		set      *appsv1beta1.CloneSet
		features Features
		grace    int32
		label    string
	}{
		"IPU-013 none":       {clonesettest.Set(1, clonesettest.Image("nginx:2")), Features{}, 0, two.Name},
		"IPU-171 7 s":        {clonesettest.Set(1, clonesettest.Image("nginx:2"), graceful), Features{}, 7, two.Name},
		"IPU-170 short hash": {clonesettest.Set(1, clonesettest.Image("nginx:2")), Features{ShortHash: true}, 0, two.Name[len("web-"):]},
	} {
		t.Run(name, func(t *testing.T) {
			update := planOf(tt.set, tt.features, []*appsv1.ControllerRevision{one, two},
				clonesettest.Pod("a", one.Name, clonesettest.Settled)).Verdicts[0].Update
			if update == nil {
				t.Error("update: got nil, want a value")
			} else if update.GraceSeconds != tt.grace {
				t.Errorf("grace period in seconds of the update: got %d, want %d\n%+v", update.GraceSeconds, tt.grace, update)
			} else if update.Revision != two.Name {
				t.Errorf("revision of the update: got %q, want %q\n%+v", update.Revision, two.Name, update)
			} else if update.RevisionLabels[pub.ControllerRevisionHash] != tt.label {
				t.Errorf("revision label controller revision hash of the update: got %q, want %q\n%+v",
					update.RevisionLabels[pub.ControllerRevisionHash], tt.label, update)
			} else if update.RevisionLabels[pub.PodTemplateHash] != two.Name[len("web-"):] {
				t.Errorf("revision label pod template hash of the update: got %q, want %q\n%+v", update.RevisionLabels[pub.PodTemplateHash],
					two.Name[len("web-"):], update)
			}
		})
	}
}

// The three policies, ReCreate by default, and in place for one engine with options (IPU-002, IPU-010).
func TestEachPolicyChoosesInPlaceOrRecreation(t *testing.T) {
	one, two := storedRevision(1, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("2"))),
		storedRevision(2, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("3")))
	resize := Features{InPlace: inplace.Options{Resize: true}}
	for name, tt := range map[string]struct {
		policy   appsv1beta1.CloneSetPodUpdatePolicy
		features Features
		want     podplan.Action
	}{
		"IPU-010 none":                          {"", resize, podplan.Recreate},
		"IPU-010 ReCreate":                      {appsv1beta1.ReCreateCloneSetPodUpdatePolicy, resize, podplan.Recreate},
		"IPU-010 InPlaceIfPossible, possible":   {appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, resize, podplan.UpdateInPlace},
		"IPU-010 InPlaceIfPossible, impossible": {appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, Features{}, podplan.Recreate},
		"IPU-010 InPlaceOnly, possible":         {appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy, resize, podplan.UpdateInPlace},
		"IPU-010 InPlaceOnly, impossible":       {appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy, Features{}, podplan.Wait},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(clonesettest.Set(1, clonesettest.App("nginx:1", "a", "", clonesettest.CPU("3")), clonesettest.Policy(tt.policy)),
				tt.features, []*appsv1.ControllerRevision{one,
					two}, clonesettest.Pod("a", one.Name, clonesettest.Settled))
			if got := plan.Verdicts[0].Action; got != tt.want {
				t.Errorf("action of the first verdict: got %q, want %q\n%s", got, tt.want, plan.Verdicts[0].Message)
			}
		})
	}
}

// TestTheConditionOfHolds: the gate and the condition have one name (IPU-016), and both gates are on every
// new pod (IPU-131, IPU-140).
func TestTheConditionOfHolds(t *testing.T) {
	pod := corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(planFor(clonesettest.Set(1,
		clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy))).Create[0].Pod, &pod); err != nil {
		t.Fatal(err)
	}
	if !readiness.HasGate(&pod) {
		t.Errorf("the pod has our readiness gate: got false, want true\n%v", pod.Spec.ReadinessGates)
	} else if pod.Spec.ReadinessGates[0].ConditionType != "InPlaceUpdateReady" {
		t.Errorf("condition type of the first readiness gate of the pod: got %q, want %q\n%v", pod.Spec.ReadinessGates[0].ConditionType,
			"InPlaceUpdateReady", pod.Spec.ReadinessGates)
	} else if pod.Spec.ReadinessGates[1].ConditionType != "KruisePodReady" {
		t.Errorf("condition type of the second readiness gate of the pod: got %q, want %q\n%v", pod.Spec.ReadinessGates[1].ConditionType, "KruisePodReady",
			pod.Spec.ReadinessGates)
	}
}

// TestHeadlineOfALargeSet groups the pods, so that a log of thousands can be read.
func TestHeadlineOfALargeSet(t *testing.T) {
	one := storedRevision(1, clonesettest.Image("nginx:1"))
	var pods []*corev1.Pod
	for i := range 30 {
		pods = append(pods, clonesettest.Pod(fmt.Sprintf("web-%02d", i), one.Name, clonesettest.Settled))
	}
	plan := planOf(clonesettest.Set(30, clonesettest.Image("nginx:2")), Features{},
		[]*appsv1.ControllerRevision{one, storedRevision(2, clonesettest.Image("nginx:2"))},
		pods...)
	lines := strings.Split(strings.TrimSpace(plan.Headline()), "\n")
	if got, want := lines[len(lines)-1], "wait: UpdatedPodsUnavailable: 29 pods (web-01, web-02, web-03 ...): waiting for 1 updated pod to become available; 1 pod at a time (maxUnavailable 1)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(lines) > 6 {
		t.Errorf("%d lines:\n%s", len(lines), plan.Headline())
	}
}
