package slim

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of workloads of UnitedDeployments and their pods is kept what plans read of them, and of others not; slim
// ones stay as they are.
func TestSubsetsOfUnitedDeployments(t *testing.T) {
	for _, in := range []bool{true, false} {
		meta := metav1.ObjectMeta{Name: "web-a", Annotations: map[string]string{subsetPatch: "{}", "other": "x"}}
		if in {
			meta.Labels = map[string]string{subsetName: "a"}
		}
		deployment := &appsv1.Deployment{ObjectMeta: *meta.DeepCopy(), Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: "Recreate"},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "n"}}}, Status: appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 1, ObservedGeneration: 3,
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure}}}}
		set := &appsv1.StatefulSet{ObjectMeta: *meta.DeepCopy(), Spec: appsv1.StatefulSetSpec{UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: "OnDelete"},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "n"}}}, Status: appsv1.StatefulSetStatus{Replicas: 2, ReadyReplicas: 1, ObservedGeneration: 3}}
		for range 2 {
			for _, object := range []any{deployment, set} {
				if _, err := Any(object); err != nil {
					t.Fatal(err)
				}
			}
			d, s := deployment.Status, set.Status
			if (d.Replicas == 2 && d.ReadyReplicas == 1 && d.ObservedGeneration == 3 &&
				len(d.Conditions) == 1 && deployment.Spec.Strategy.Type == "Recreate") != in {
				t.Errorf("what plans read of the Deployment is kept, want %t: %+v", in, deployment)
			}
			if (s.Replicas == 2 && s.ReadyReplicas == 1 && s.ObservedGeneration == 3 &&
				set.Spec.UpdateStrategy.Type == "OnDelete" && set.Annotations[subsetPatch] == "{}") != in {
				t.Errorf("what plans read of the StatefulSet is kept, want %t: %+v", in, set)
			}
			if patch := deployment.Annotations[subsetPatch]; patch != "{}" {
				t.Errorf("patch of the subset: got %q, want {}", patch)
			}
			if other := deployment.Annotations["other"]; other != "" {
				t.Errorf("another annotation: got %q, want none", other)
			}
			if node := deployment.Spec.Template.Spec.NodeName + set.Spec.Template.Spec.NodeName; node != "" {
				t.Errorf("node of the templates: got %q, want none", node)
			}
		}
		pod := &corev1.Pod{ObjectMeta: *meta.DeepCopy(), Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled}, {Type: corev1.PodReady}, {Type: corev1.PodInitialized}}}}
		if _, err := Pod(pod); err != nil {
			t.Errorf("slimming the pod: %v", err)
		}
		if n := len(pod.Status.Conditions); (n == 2) != in {
			t.Errorf("conditions of a pod that are kept: got %d, want 2: %t", n, in)
		}
	}
}
