// Package restart contains the rules of ContainerRecreateRequests that need neither a client nor a runtime.
package restart

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// These are the completion messages of the manager (CRR-059 to CRR-061).
const (
	MessagePodGone  = "pod has gone"
	MessageNoAnswer = "daemon has not responded for a long time"
	MessageDeadline = "recreating has exceeded the activeDeadlineSeconds"
)

// Completed reports whether the request is completed, so that nothing may happen to it any more (CRR-003,
// CRR-067).
func Completed(request *appsv1beta1.ContainerRecreateRequest) bool {
	return request.Status.CompletionTime != nil
}

// Terminal reports whether the phase of a container is final (CRR-110).
func Terminal(phase appsv1beta1.ContainerRecreateRequestPhase) bool {
	return phase == appsv1beta1.ContainerRecreateRequestSucceeded ||
		phase == appsv1beta1.ContainerRecreateRequestFailed
}

// PodUID returns the UID of the pod that the request is for.
func PodUID(request *appsv1beta1.ContainerRecreateRequest) types.UID {
	return types.UID(request.Labels[pub.RecreatePodUID])
}

// Holder returns the entry with which a request holds its pod not ready (CRR-081).
func Holder(request *appsv1beta1.ContainerRecreateRequest) readiness.Holder {
	return readiness.Holder{UserAgent: pub.RecreateUserAgent, Key: request.Namespace + "/" + request.Name}
}

// Abandon returns the states of all containers if the request ends early, for example at its deadline:
// containers that did not succeed have failed, with why as the message (CRR-066).
func Abandon(
	request *appsv1beta1.ContainerRecreateRequest, why string,
) []appsv1beta1.ContainerRecreateRequestContainerRecreateState {
	known := map[string]appsv1beta1.ContainerRecreateRequestContainerRecreateState{}
	for _, state := range request.Status.ContainerRecreateStates {
		known[state.Name] = state
	}

	var states []appsv1beta1.ContainerRecreateRequestContainerRecreateState
	for _, container := range request.Spec.Containers {
		state, ok := known[container.Name]
		if !ok {
			state.Name = container.Name
		}
		if !Terminal(state.Phase) ||
			state.Phase == appsv1beta1.ContainerRecreateRequestFailed && state.Message == "" {
			state.Phase, state.Message = appsv1beta1.ContainerRecreateRequestFailed, why
		}
		states = append(states, state)
	}

	return states
}

// Failed returns the containers that failed, with the reasons, for messages.
func Failed(request *appsv1beta1.ContainerRecreateRequest) []string {
	var failed []string
	for _, state := range request.Status.ContainerRecreateStates {
		if state.Phase == appsv1beta1.ContainerRecreateRequestFailed {
			failed = append(failed, fmt.Sprintf("%s (%s)", state.Name, state.Message))
		}
	}
	return failed
}

// Recreated reports whether the container is another one than the one for which the request was made. Its ID
// and restart count decide, not the time (CRR-072, CRR-114, CRR-161, CRR-165).
func Recreated(
	before *appsv1beta1.ContainerRecreateRequestContainerContext, containerID string, restartCount int32,
) bool {
	return before != nil && containerID != "" &&
		(containerID != before.ContainerID || restartCount > before.RestartCount)
}

// Snapshot returns what kubelet reports about the new containers, in the order of the request (CRR-070 to
// CRR-075). If none of them runs yet, it returns the former snapshot (CRR-073).
func Snapshot(
	request *appsv1beta1.ContainerRecreateRequest, pod *corev1.Pod,
) []appsv1beta1.ContainerRecreateRequestContainerStatus {
	var snapshot []appsv1beta1.ContainerRecreateRequestContainerStatus
	for i := range request.Spec.Containers {
		container := &request.Spec.Containers[i]
		status := StatusOf(pod, container.Name)
		if status == nil || status.State.Running == nil {
			continue
		}

		fresh := Recreated(container.StatusContext, status.ContainerID, status.RestartCount)
		if container.StatusContext == nil { // only the time can be compared
			fresh = !status.State.Running.StartedAt.Time.Before(request.CreationTimestamp.Time)
		}
		if fresh {
			snapshot = append(snapshot, appsv1beta1.ContainerRecreateRequestContainerStatus{
				Name: container.Name, Ready: status.Ready,
				RestartCount: status.RestartCount, ContainerID: status.ContainerID,
			})
		}
	}

	if len(snapshot) == 0 {
		return request.Status.ContainerStatusSnapshot
	}

	return snapshot
}

// StatusOf returns the status of a container or init container, nil if there is none.
func StatusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
