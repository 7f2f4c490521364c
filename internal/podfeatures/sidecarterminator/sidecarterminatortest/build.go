// Package sidecarterminatortest builds pods with sidecars, and requests for them, for tests.
package sidecarterminatortest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Noon is the time at which main containers end.
var Noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Option changes a pod.
type Option func(*corev1.Pod)

// Pod returns pod p of UID u on node n, with restartPolicy Never; its containers are added by options.
func Pod(options ...Option) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{
			NodeName:                      "n",
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(30)),
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, option := range options {
		option(pod)
	}

	return pod
}

// State sets the state of a container.
type State func(*corev1.ContainerStatus)

// Running is the state of a container that runs after so many restarts.
func Running(restarts int32) State {
	return func(s *corev1.ContainerStatus) {
		s.RestartCount, s.ContainerID = restarts, fmt.Sprintf("c://%s-%d", s.Name, restarts)
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	}
}

// Ended is the state of a container that ended with the code.
func Ended(code int32) State {
	return func(s *corev1.ContainerStatus) {
		s.ContainerID = "c://" + s.Name
		s.State = corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(Noon)},
		}
	}
}

// Waiting is the state of a container that kubelet has yet to start.
func Waiting(s *corev1.ContainerStatus) {
	s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
}

// With adds a container with literal variables; env alternates names and values.
func With(name string, state State, env ...string) Option {
	return func(pod *corev1.Pod) {
		c := corev1.Container{Name: name, Image: name + ":1"}
		for i := 0; i+1 < len(env); i += 2 {
			c.Env = append(c.Env, corev1.EnvVar{Name: env[i], Value: env[i+1]})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		status := corev1.ContainerStatus{Name: name}
		state(&status)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
}

// Sidecar adds a sidecar whose exit code counts.
func Sidecar(name string, state State) Option {
	return With(name, state, pub.TerminateSidecarEnv, "true")
}

// Ignored adds a sidecar whose exit code does not count.
func Ignored(name string, state State) Option {
	return With(name, state, pub.TerminateSidecarEnv, "true", pub.TerminateSidecarIgnoreExitEnv, "true")
}

// ByImage adds a sidecar that only names an image.
func ByImage(name string, state State) Option {
	return With(name, state, pub.TerminateSidecarImageEnv, "exit:1")
}

// Policy sets the restart policy of the pod.
func Policy(policy corev1.RestartPolicy) Option {
	return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = policy }
}

// Phase sets the phase, and marks it as set ahead at that time unless the time is zero.
func Phase(phase corev1.PodPhase, ahead time.Time) Option {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = phase
		if !ahead.IsZero() {
			pod.Status.Conditions = []corev1.PodCondition{
				{
					Type:               pub.SidecarTerminated,
					Status:             corev1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(ahead),
				},
			}
		}
	}
}

// Request returns a request of that name for pod p, created at noon, for containers that had not restarted.
func Request(name string, containers ...string) *appsv1beta1.ContainerRecreateRequest {
	yes := true
	r := &appsv1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "ns",
			Name:              name,
			UID:               types.UID("uid of " + name),
			CreationTimestamp: metav1.NewTime(Noon),
			Labels:            map[string]string{pub.RecreatePodUID: "u"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: &yes},
			},
		},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "p"},
	}

	for _, c := range containers {
		r.Spec.Containers = append(r.Spec.Containers, appsv1beta1.ContainerRecreateRequestContainer{
			Name: c,
			StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{
				ContainerID: "c://" + c + "-0",
			},
		})
	}

	return r
}

// Completed completes the request with that message.
func Completed(
	r *appsv1beta1.ContainerRecreateRequest, message string,
) *appsv1beta1.ContainerRecreateRequest {
	done := metav1.NewTime(Noon)
	r.Status.Phase, r.Status.CompletionTime, r.Status.Message =
		appsv1beta1.ContainerRecreateRequestCompleted, &done, message
	return r
}
