package cloneset

import (
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/podplan"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"encoding/json"
	"fmt"
	"time"
)

// templated gives a set the template.
func templated(template string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { setTemplate(set, template) }
}

// app is a template of one container that reads annotation config, and more members of metadata and container.
func app(image, config, metadata, container string) func(*appsv1beta1.CloneSet) {
	return templated(fmt.Sprintf(`{"metadata":{"labels":{"app":"web"},"annotations":{"config":%q%s}},"spec":{"containers":[{"name":"nginx","image":%q,`+
		`"env":[{"name":"CONFIG","valueFrom":{"fieldRef":{"fieldPath":"metadata.annotations['config']"}}}]%s}]}}`, config, metadata, image, container))
}

// cpu is the part of a container, for app, that limits its CPU.
func cpu(limit string) string {
	return `,"resources":{"limits":{"cpu":"` + limit + `"},"requests":{"cpu":"1"}}`
}

// maxUnavailable sets the number of pods that may be unavailable.
func maxUnavailable(n int) func(*appsv1beta1.CloneSet) {
	return rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.MaxUnavailable = number(n) })
}

// paused pauses the rollout, or lets it go on.
func paused(yes bool) func(*appsv1beta1.CloneSet) {
	return rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Paused = yes })
}

// annotated annotates the set.
func annotated(key, value string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		if set.Annotations == nil {
			set.Annotations = map[string]string{}
		}
		set.Annotations[key] = value
	}
}

// toDelete names pods in podsToDelete.
func toDelete(names ...string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { set.Spec.ScaleStrategy.PodsToDelete = names }
}

// updateHook holds pods with label traffic before their update in place, and marks them not ready if it says so.
func updateHook(mark bool) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{InPlaceUpdate: &pub.LifecycleHook{LabelsHandler: map[string]string{"traffic": "on"},
			MarkPodNotReady: mark}}
	}
}

// hookedImage is image with the label that updateHook looks at.
func hookedImage(image string) func(*appsv1beta1.CloneSet) {
	return templated(fmt.Sprintf(`{"metadata":{"labels":{"app":"web","traffic":"on"}},"spec":{"containers":[{"name":"nginx","image":%q}]}}`,
		image))
}

// env changes the environment of the only container, which cannot be done in place.
func env(value string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		setTemplate(set, fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1","env":[{"name":"E","value":%q}]}]}}`, value))
	}
}

// policy sets the policy by which pods are updated.
func policy(p appsv1beta1.CloneSetPodUpdatePolicy) func(*appsv1beta1.CloneSet) {
	return rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.PodUpdatePolicy = p })
}

// both makes all the changes, in order.
func both(changes ...func(*appsv1beta1.CloneSet)) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		for _, change := range changes {
			change(set)
		}
	}
}

// replicas sets the number of pods.
func replicas(n int32) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { set.Spec.Replicas = &n }
}

// claims gives each pod a claim called data of the size.
func claims(size string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		set.Spec.VolumeClaimTemplates = template.VolumeClaimTemplates{claimTemplate("data", size)}
	}
}

// partition keeps n pods at their revision.
func partition(n int) func(*appsv1beta1.CloneSet) {
	return rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Partition = number(n) })
}

// surge sets maxSurge and maxUnavailable.
func surge(surge, unavailable int) func(*appsv1beta1.CloneSet) {
	return rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
		s.MaxSurge, s.MaxUnavailable = number(surge), number(unavailable)
	})
}

// planTime is the time of plans in tests.
var planTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// minReadySeconds sets how long a pod must be ready to be available.
func minReadySeconds(seconds int32) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { set.Spec.MinReadySeconds = seconds }
}

// actions are the plan's verdicts in short.
func actions(verdicts []*podplan.Verdict) map[string]string {
	got := map[string]string{}
	for _, v := range verdicts {
		got[v.Pod.Name] = string(v.Action) + ": " + string(v.Reason)
	}
	return got
}

// inState puts a pod into a state of its lifecycle.
func inState(state pub.LifecycleStateType) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[pub.LifecycleState] = string(state) }
}

// settledGates gives a pod at a revision the labels and gates that it has at rest.
func settledGates(pod *corev1.Pod) {
	pod.Labels[pub.PodTemplateHash] = pod.Labels[pub.ControllerRevisionHash][len("web-"):]
	for _, gate := range []corev1.PodConditionType{pub.InPlaceUpdateReady, pub.KruisePodReady} {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue})
	}
}

// inPlaceGrace sets the grace period of updates in place.
func inPlaceGrace(seconds int32) func(*appsv1beta1.CloneSet) {
	return rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
		s.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: seconds}
	})
}

// two returns a template with these images.
func two(nginx, agent string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		setTemplate(set, fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":%q},{"name":"agent","image":%q}]}}`, nginx, agent))
	}
}

// makeSet returns a set of nginx pods; options change it.
func makeSet(replicas int32, options ...func(*appsv1beta1.CloneSet)) *appsv1beta1.CloneSet {
	set := &appsv1beta1.CloneSet{}
	set.Name, set.Namespace = "web", "default"
	set.Spec.Replicas = &replicas
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateCloneSetUpdateStrategyType
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1beta1.RollingUpdateCloneSetStrategy{
		PodUpdatePolicy: appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, MaxUnavailable: number(1)}
	set.Spec.ScaleStrategy.EnablePVCReuse = true
	setTemplate(set, `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
	for _, option := range options {
		option(set)
	}
	return set
}

// setTemplate replaces the template of a set by the document.
func setTemplate(set *appsv1beta1.CloneSet, document string) {
	if err := json.Unmarshal([]byte(document), &set.Spec.Template); err != nil {
		panic(err)
	}
}

// number is a number where a percentage may stand too.
func number(n int) *intstr.IntOrString { v := intstr.FromInt32(int32(n)); return &v }

// text is a percentage, or what a user wrote for one.
func text(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }

// image gives a set a template of one container with the image.
func image(image string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		setTemplate(set, fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":%q}]}}`, image))
	}
}

// rolling changes the options of rolling updates.
func rolling(change func(*appsv1beta1.RollingUpdateCloneSetStrategy)) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { change(set.Spec.UpdateStrategy.RollingUpdate) }
}

// claimTemplate is a claim template of that name and size.
func claimTemplate(name, size string) template.VolumeClaimTemplate {
	return template.FromPersistentVolumeClaim(corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}}})
}

// podOf is an available pod at the revision.
func podOf(name, revisionName string, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = name, "default", "pod-uid"
	pod.Labels = map[string]string{"app": "web", pub.ControllerRevisionHash: revisionName, pub.LifecycleState: "Normal"}
	pod.Spec.NodeName = "n"
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(planTime.Add(-time.Hour))}}
	for _, option := range options {
		option(pod)
	}
	return pod
}
