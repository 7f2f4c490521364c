package statefulset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

var planTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a set with what belongs to it.
type world struct {
	t *testing.T
	Snapshot
	// revisions are the names of the stored ones, by image.
	revisions map[string]string
}

// option changes a set.
type option func(*appsv1beta1.StatefulSet)

func inParallel(set *appsv1beta1.StatefulSet) {
	set.Spec.PodManagementPolicy = appsv1beta1.ParallelPodManagement
}

func rollingWith(change func(*appsv1beta1.RollingUpdateStatefulSetStrategy)) option {
	return func(set *appsv1beta1.StatefulSet) {
		if set.Spec.UpdateStrategy.RollingUpdate == nil {
			set.Spec.UpdateStrategy.RollingUpdate = &appsv1beta1.RollingUpdateStatefulSetStrategy{}
		}
		change(set.Spec.UpdateStrategy.RollingUpdate)
	}
}

func partition(n int32) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) { r.Partition = &n })
}

func maxUnavailable(n int32) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) { r.MaxUnavailable = number(n) })
}

func policy(policy appsv1beta1.StatefulSetPodUpdatePolicy) option {
	return rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) { r.PodUpdatePolicy = policy })
}

func paused(set *appsv1beta1.StatefulSet) {
	rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) { r.Paused = true })(set)
}

func unordered(set *appsv1beta1.StatefulSet) {
	rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) {
		r.UnorderedUpdate = &appsv1beta1.StatefulSetUnorderedUpdate{}
	})(set)
}

func deletedByHand(set *appsv1beta1.StatefulSet) {
	set.Spec.UpdateStrategy = appsv1beta1.StatefulSetUpdateStrategy{Type: appsv1beta1.OnDeleteStatefulSetStrategyType}
}

func reserve(entries ...any) option {
	return func(set *appsv1beta1.StatefulSet) { set.Spec.ReserveOrdinals = reserved(entries...) }
}

func scaleBy(n int32) option {
	return func(set *appsv1beta1.StatefulSet) {
		set.Spec.ScaleStrategy = &appsv1beta1.StatefulSetScaleStrategy{MaxUnavailable: number(n)}
	}
}

func number(n int32) *intstr.IntOrString { v := intstr.FromInt32(n); return &v }

func reserved(entries ...any) []intstr.IntOrString {
	var list []intstr.IntOrString
	for _, entry := range entries {
		switch entry := entry.(type) {
		case int:
			list = append(list, intstr.FromInt32(int32(entry)))
		case string:
			list = append(list, intstr.FromString(entry))
		}
	}
	return list
}

func setTemplate(set *appsv1beta1.StatefulSet, image string) {
	document := fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":%q}]}}`, image)
	if err := set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
		panic(err)
	}
}

func withClaims(set *appsv1beta1.StatefulSet) { setClaims(set, "1Gi") }

func setClaims(set *appsv1beta1.StatefulSet, size string) {
	document := fmt.Sprintf(`[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":%q}}}}]`,
		size)
	if err := set.Spec.VolumeClaimTemplates.UnmarshalJSON([]byte(document)); err != nil {
		panic(err)
	}
}

// newWorld is a set named web of image a:1, with the revisions of the images a:1, a:2 and so on as far as
// they are asked for.
func newWorld(t *testing.T, replicas int32, options ...option) *world {
	set := &appsv1beta1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "set", Generation: 1}}
	set.Spec.Replicas, set.Spec.ServiceName = &replicas, "web"
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.UpdateStrategy = appsv1beta1.StatefulSetUpdateStrategy{Type: appsv1beta1.RollingUpdateStatefulSetStrategyType,
		RollingUpdate: &appsv1beta1.RollingUpdateStatefulSetStrategy{}}
	setTemplate(set, "a:1")
	for _, option := range options {
		option(set)
	}
	w := &world{t: t, revisions: map[string]string{}, Snapshot: Snapshot{Set: set, Claims: map[string]*corev1.PersistentVolumeClaim{},
		ForeignPods: map[string]bool{}, Features: Features{StartOrdinal: true, PodIndexLabel: true, DeleteClaims: true, ResizeClaims: true}}}
	w.Now = planTime
	return w
}

// at stores the revision of an image. The set has the image from now on.
func (w *world) at(image string) {
	setTemplate(w.Set, image)
	if w.revisions[image] != "" {
		return
	}
	revision := Make(w.Snapshot).NewRevision
	if revision == nil {
		w.t.Fatal("no new revision for", image)
	}
	revision.UID, revision.ResourceVersion = types.UID("revision-"+image), "1"
	w.Revisions, w.revisions[image] = append(w.Revisions, revision), revision.Name
	if w.Set.Status.CurrentRevision == "" {
		w.Set.Status.CurrentRevision = revision.Name
	}
}

// state changes a pod.
type state func(*corev1.Pod)

func notReady(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

func pending(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending; notReady(pod) }

func failed(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed; notReady(pod) }

func terminating(pod *corev1.Pod) {
	end := metav1.NewTime(planTime)
	pod.DeletionTimestamp = &end
}

func specified(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "" }

func in(s pub.LifecycleStateType) state {
	return func(pod *corev1.Pod) { pod.Labels[pub.LifecycleState] = string(s) }
}

// pod adds an available pod of the image.
func (w *world) pod(ordinal int, image string, states ...state) {
	name := podName("web", ordinal)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), ResourceVersion: "1",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.Set, appsv1beta1.GroupVersion.WithKind(kind))},
		Labels: map[string]string{"app": "web", appsv1.StatefulSetPodNameLabel: name, pub.LifecycleState: string(pub.LifecycleStateNormal),
			pub.ControllerRevisionHash: w.revisions[image]}}}
	pod.Spec = corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main", Image: image}}}
	for i := range w.Set.Spec.VolumeClaimTemplates {
		template := w.Set.Spec.VolumeClaimTemplates[i].Name
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: template, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(template, "web", ordinal)}}})
		w.claim(ordinal)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady,
		Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(planTime.Add(-time.Hour))}}}
	for _, state := range states {
		state(pod)
	}
	w.Pods = append(w.Pods, pod)
}

// claim adds the PVC of the template data, with the size that the template asks for.
func (w *world) claim(ordinal int) *corev1.PersistentVolumeClaim {
	name := claimName("data", "web", ordinal)
	if w.Claims[name] == nil {
		spec := w.Set.Spec.VolumeClaimTemplates[0].Spec
		w.Claims[name] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name),
			ResourceVersion: "1"}, Spec: corev1.PersistentVolumeClaimSpec{AccessModes: spec.AccessModes, Resources: spec.Resources},
			Status: corev1.PersistentVolumeClaimStatus{Capacity: spec.Resources.Requests}}
	}
	return w.Claims[name]
}

// does makes a plan, and returns what it does in short words: creations with their image, and what happens to
// pods, in order of their names; pods that are kept or that only wait are left out.
func (w *world) does() []string {
	w.t.Helper()
	plan := Make(w.Snapshot)
	images := map[string]string{}
	for image, name := range w.revisions {
		images[name] = image
	}
	words := []string{}
	for _, creation := range plan.Create {
		words = append(words, fmt.Sprintf("+%s %s", strings.TrimPrefix(creation.Name, "web-"), images[creation.Revision]))
	}
	for _, v := range plan.Verdicts {
		name := strings.TrimPrefix(v.Pod.Name, "web-")
		switch v.Action {
		case podplan.Keep, podplan.Wait:
		case podplan.Delete:
			words = append(words, "-"+name)
		case podplan.UpdateInPlace:
			words = append(words, "~"+name)
		case podplan.Patch:
			words = append(words, fmt.Sprintf("%s: %s", name, v.Patch))
		default:
			words = append(words, fmt.Sprintf("%s %s", v.Action, name))
		}
	}
	for _, growth := range plan.Growth {
		words = append(words, fmt.Sprintf("grow %s %s", strings.TrimPrefix(growth.Claim.Name, "data-web-"), growth.Storage.String()))
	}
	for _, change := range plan.ClaimOwners {
		var owners []string
		for _, owner := range change.Owners {
			owners = append(owners, owner.Kind)
		}
		words = append(words, fmt.Sprintf("owners %s %v", strings.TrimPrefix(change.Claim.Name, "data-web-"), owners))
	}
	return words
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	got := w.does()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		w.t.Errorf("what is done (-want +got):\n%s\n%s", diff, Make(w.Snapshot))
	}
}
