// Package launchprioritytest builds pods that are launched in order, for tests of the plan and of the
// controller.
package launchprioritytest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
)

// PodOption changes a pod of a test.
type PodOption func(*corev1.Pod)

// Pod returns a pod "p" whose containers a, b, c... have these priorities.
func Pod(priorities []int, options ...PodOption) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for i, priority := range priorities {
		name := string(rune('a' + i))
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: name,
			Env:  []corev1.EnvVar{BarrierEnv("p-barrier", fmt.Sprintf("p_%d", priority))},
		})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name,
			State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError"},
			},
		})
	}

	for _, option := range options {
		option(pod)
	}

	return pod
}

// BarrierEnv returns the variable that makes a container wait for its key.
func BarrierEnv(configMap, key string) corev1.EnvVar {
	return corev1.EnvVar{
		Name: pub.ContainerBarrierEnv,
		ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
				Key:                  key,
			},
		},
	}
}

// Running sets the states of containers to running, ready or not.
func Running(ready bool, containers ...int) PodOption {
	return func(pod *corev1.Pod) {
		for _, i := range containers {
			pod.Status.ContainerStatuses[i].Ready = ready
			pod.Status.ContainerStatuses[i].State = corev1.ContainerState{
				Running: &corev1.ContainerStateRunning{},
			}
		}
	}
}

// Ended sets the states of containers to terminated.
func Ended(code int32, policy corev1.RestartPolicy, containers ...int) PodOption {
	return func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = policy
		for _, i := range containers {
			pod.Status.ContainerStatuses[i].State = corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: code},
			}
		}
	}
}

// Finished marks the launch of the pod as complete.
func Finished(pod *corev1.Pod) { pod.Annotations = map[string]string{pub.LaunchCompleted: "true"} }

// ConfigMap returns the metadata of p's barrier, owned by the pod with that UID.
func ConfigMap(owner types.UID, keys string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
	m.Namespace, m.Name, m.UID = "ns", "p-barrier", "m"
	m.Labels, m.Annotations = map[string]string{pub.LaunchBarrier: "true"},
		map[string]string{pub.LaunchReleased: keys}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: owner}}
	return m
}
