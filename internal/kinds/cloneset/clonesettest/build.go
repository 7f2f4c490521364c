// Package clonesettest builds CloneSets and their pods for tests of the planner and of the controller.
// Functions that change a set serve as options of Set and as changes that a user makes later.
package clonesettest

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// Set returns a set of nginx pods; options change it.
func Set(replicas int32, options ...func(*appsv1beta1.CloneSet)) *appsv1beta1.CloneSet {
	set := &appsv1beta1.CloneSet{}
	set.Name, set.Namespace = "web", "default"
	set.Spec.Replicas = &replicas
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateCloneSetUpdateStrategyType
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1beta1.RollingUpdateCloneSetStrategy{
		PodUpdatePolicy: appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy,
		MaxUnavailable:  new(intstr.FromInt32(1))}
	set.Spec.ScaleStrategy.EnablePVCReuse = true
	SetTemplate(set,
		`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
	for _, option := range options {
		option(set)
	}

	return set
}

// Templated sets the template.
func Templated(template string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { SetTemplate(set, template) }
}

// App sets a template of one container that reads the annotation config. metadata and container are further
// members of the two.
func App(image, config, metadata, container string) func(*appsv1beta1.CloneSet) {
	return Templated(fmt.Sprintf(
		`{"metadata":{"labels":{"app":"web"},"annotations":{"config":%q%s}},"spec":{"containers":[{"name":"nginx","image":%q,`+
			`"env":[{"name":"CONFIG","valueFrom":{"fieldRef":{"fieldPath":"metadata.annotations['config']"}}}]%s}]}}`,
		config, metadata, image, container))
}

// CPU returns the member of a container that limits its CPU, for App.
func CPU(limit string) string {
	return `,"resources":{"limits":{"cpu":"` + limit + `"},"requests":{"cpu":"1"}}`
}

// MaxUnavailable sets the number of pods that may be unavailable.
func MaxUnavailable(n int) func(*appsv1beta1.CloneSet) {
	return Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
		s.MaxUnavailable = new(intstr.FromInt32(int32(n)))
	})
}

// Paused pauses or resumes the rollout.
func Paused(yes bool) func(*appsv1beta1.CloneSet) {
	return Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Paused = yes })
}

// Annotated annotates the set.
func Annotated(key, value string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		if set.Annotations == nil {
			set.Annotations = map[string]string{}
		}
		set.Annotations[key] = value
	}
}

// ToDelete names pods in podsToDelete.
func ToDelete(names ...string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { set.Spec.ScaleStrategy.PodsToDelete = names }
}

// UpdateHook makes a hook hold pods that have the label traffic before their update in place. If mark is
// true, the hook marks the pods not ready.
func UpdateHook(mark bool) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{
			InPlaceUpdate: &pub.LifecycleHook{LabelsHandler: map[string]string{"traffic": "on"},
				MarkPodNotReady: mark}}
	}
}

// HookedImage is Image with the label that UpdateHook looks at.
func HookedImage(image string) func(*appsv1beta1.CloneSet) {
	return Templated(fmt.Sprintf(
		`{"metadata":{"labels":{"app":"web","traffic":"on"}},"spec":{"containers":[{"name":"nginx","image":%q}]}}`,
		image))
}

// Env changes the environment of the only container, which cannot be updated in place.
func Env(value string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		SetTemplate(set, fmt.Sprintf(
			`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1","env":[{"name":"E","value":%q}]}]}}`,
			value))
	}
}

// Policy sets the policy by which pods are updated.
func Policy(p appsv1beta1.CloneSetPodUpdatePolicy) func(*appsv1beta1.CloneSet) {
	return Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.PodUpdatePolicy = p })
}

// Both makes all the changes in order.
func Both(changes ...func(*appsv1beta1.CloneSet)) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		for _, change := range changes {
			change(set)
		}
	}
}

// Replicas sets the number of pods.
func Replicas(n int32) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { set.Spec.Replicas = &n }
}

// Claims gives each pod a claim that is called data and has the given size.
func Claims(size string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		set.Spec.VolumeClaimTemplates = template.VolumeClaimTemplates{ClaimTemplate("data", size)}
	}
}

// Partition keeps n pods at the current revision.
func Partition(n int) func(*appsv1beta1.CloneSet) {
	return Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Partition = new(intstr.FromInt32(int32(n))) })
}

// Surge sets maxSurge and maxUnavailable.
func Surge(surge, unavailable int) func(*appsv1beta1.CloneSet) {
	return Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
		s.MaxSurge, s.MaxUnavailable = new(intstr.FromInt32(int32(surge))), new(intstr.FromInt32(int32(unavailable)))
	})
}

// Now is the time of plans in tests.
var Now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// MinReadySeconds sets how long a pod must be ready to be available.
func MinReadySeconds(seconds int32) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { set.Spec.MinReadySeconds = seconds }
}

// Actions returns the action and the reason of each verdict by pod name.
func Actions(verdicts []*podplan.Verdict) map[string]string {
	got := map[string]string{}
	for _, v := range verdicts {
		got[v.Pod.Name] = string(v.Action) + ": " + string(v.Reason)
	}
	return got
}

// InState puts a pod into a state of its lifecycle.
func InState(state pub.LifecycleStateType) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[pub.LifecycleState] = string(state) }
}

// Settled gives a pod the labels and gates that a pod at a revision has at rest.
func Settled(pod *corev1.Pod) {
	pod.Labels[pub.PodTemplateHash] = pod.Labels[pub.ControllerRevisionHash][len("web-"):]
	for _, gate := range []corev1.PodConditionType{pub.InPlaceUpdateReady, pub.KruisePodReady} {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates,
			corev1.PodReadinessGate{ConditionType: gate})
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue})
	}
}

// InPlaceGrace sets the grace period of updates in place.
func InPlaceGrace(seconds int32) func(*appsv1beta1.CloneSet) {
	return Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
		s.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: seconds}
	})
}

// TwoImages sets a template of two containers with these images.
func TwoImages(nginx, agent string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		SetTemplate(set, fmt.Sprintf(
			`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":%q},{"name":"agent","image":%q}]}}`,
			nginx, agent))
	}
}

// SetTemplate replaces the template of a set.
func SetTemplate(set *appsv1beta1.CloneSet, document string) {
	if err := json.Unmarshal([]byte(document), &set.Spec.Template); err != nil {
		panic(err)
	}
}

// Image sets a template of one container with the image.
func Image(image string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		SetTemplate(set, fmt.Sprintf(
			`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":%q}]}}`,
			image))
	}
}

// Rolling changes the options of rolling updates.
func Rolling(change func(*appsv1beta1.RollingUpdateCloneSetStrategy)) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { change(set.Spec.UpdateStrategy.RollingUpdate) }
}

// ClaimTemplate returns a claim template of the given name and size.
func ClaimTemplate(name, size string) template.VolumeClaimTemplate {
	return template.FromPersistentVolumeClaim(corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}}})
}

// Pod returns an available pod at the revision.
func Pod(name, revisionName string, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = name, "default", "pod-uid"
	pod.Labels = map[string]string{"app": "web", pub.ControllerRevisionHash: revisionName,
		pub.LifecycleState: "Normal"}
	pod.Spec.NodeName = "n"
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(Now.Add(-time.Hour))}}
	for _, option := range options {
		option(pod)
	}
	return pod
}
