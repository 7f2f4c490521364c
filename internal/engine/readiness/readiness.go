// Package readiness determines when a pod is active, ready and available, and computes the conditions with
// which a workload holds it not ready.
package readiness

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/lifecycle"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

const (
	// ReasonStartInPlaceUpdate is the reason of InPlaceUpdateReady False (IPU-134).
	ReasonStartInPlaceUpdate = "StartInPlaceUpdate"
	// ReasonReadinessGatesNotReady is the reason of Ready False, the same that kubelet sets (IPU-135).
	ReasonReadinessGatesNotReady = "ReadinessGatesNotReady"
)

// Active reports whether a pod counts at all: it is not being deleted, has not succeeded and has not failed
// (CS-048, SS-083, PUB-035).
func Active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded &&
		pod.Status.Phase != corev1.PodFailed
}

// Condition returns the condition of the given type, nil if there is none.
func Condition(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == conditionType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// HasGate reports whether the pod has the readiness gate of updates in place.
func HasGate(pod *corev1.Pod) bool { return hasGate(pod, pub.InPlaceUpdateReady) }

func hasGate(pod *corev1.Pod, conditionType corev1.PodConditionType) bool {
	return slices.Contains(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: conditionType})
}

// Ready reports whether the pod runs, is Ready and is not held by an update in place (CS-170, IPU-138).
func Ready(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	if ready := Condition(pod, corev1.PodReady); ready == nil || ready.Status != corev1.ConditionTrue {
		return false
	}
	inPlace := Condition(pod, pub.InPlaceUpdateReady)
	return inPlace == nil || inPlace.Status == corev1.ConditionTrue
}

// Stuck reports whether a container of the pod waits for something other than its creation, such as an image
// that cannot be pulled.
func Stuck(pod *corev1.Pod) bool {
	return waits(pod, func(reason string) bool {
		return !slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, reason)
	})
}

// Unpulled reports whether a container of the pod waits for an image that cannot be pulled. Kubelet shows that in
// turn with the back-off of the container that ran before.
func Unpulled(pod *corev1.Pod) bool {
	return waits(pod, func(reason string) bool {
		return slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
			"ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}, reason)
	})
}

// waits reports whether a container of the pod waits for a reason that is one of those meant.
func waits(pod *corev1.Pod, meant func(reason string) bool) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses),
		func(s corev1.ContainerStatus) bool { return s.State.Waiting != nil && meant(s.State.Waiting.Reason) })
}

// Settled reports whether the pod's lifecycle state lets it count as available: it is empty or Normal
// (IPU-152).
func Settled(pod *corev1.Pod) bool {
	state := lifecycle.State(pod)
	return state == "" || state == pub.LifecycleStateNormal
}

// Available reports whether the pod has been ready for longer than minReadySeconds and is settled (CS-170).
// If only time is missing, it also returns how long to wait.
func Available(pod *corev1.Pod, minReadySeconds int32, now time.Time) (bool, time.Duration) {
	if !Ready(pod) || !Settled(pod) {
		return false, 0
	}
	if minReadySeconds <= 0 {
		return true, 0
	}
	since := Condition(pod, corev1.PodReady).LastTransitionTime.Time
	if since.IsZero() { // the caches do not keep of a pod of somebody else since when it is ready
		return false, 0
	}
	due := since.Add(time.Duration(minReadySeconds) * time.Second)
	if now.After(due) {
		return true, 0
	}
	return false, due.Sub(now) + time.Millisecond
}

// Hold adds the conditions to the patch that take the pod out of service before an update in place:
// InPlaceUpdateReady False and, because kubelet would soon set it, too, Ready False (IPU-134, IPU-135). It
// adds nothing if the pod has no gate or is already held.
func Hold(patch *podpatch.Patch, pod *corev1.Pod, now time.Time) {
	if !HasGate(pod) {
		return
	}
	if held := Condition(pod, pub.InPlaceUpdateReady); held == nil || held.Status != corev1.ConditionFalse {
		patch.Condition(corev1.PodCondition{
			Type: pub.InPlaceUpdateReady, Status: corev1.ConditionFalse,
			Reason: ReasonStartInPlaceUpdate, LastTransitionTime: metav1.NewTime(now),
		})
	}
	notReady(patch, pod, pub.InPlaceUpdateReady, now)
}

// notReady adds the condition Ready False, which kubelet would set, too, because a readiness gate is False.
func notReady(patch *podpatch.Patch, pod *corev1.Pod, closed corev1.PodConditionType, now time.Time) {
	ready, containers := Condition(pod, corev1.PodReady), Condition(pod, corev1.ContainersReady)
	if ready != nil && ready.Status == corev1.ConditionTrue &&
		containers != nil && containers.Status == corev1.ConditionTrue {
		patch.Condition(corev1.PodCondition{
			Type: corev1.PodReady, Status: corev1.ConditionFalse,
			Reason: ReasonReadinessGatesNotReady, Message: gatesMessage(pod, closed),
			LastTransitionTime: metav1.NewTime(now),
		})
	}
}

// gatesMessage returns the message about readiness gates in kubelet's own wording, so that kubelet has
// nothing to correct.
func gatesMessage(pod *corev1.Pod, closed corev1.PodConditionType) string {
	var open []string
	for _, gate := range pod.Spec.ReadinessGates {
		condition := Condition(pod, gate.ConditionType)
		switch {
		case gate.ConditionType == closed:
			open = append(open, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s",
				gate.ConditionType, corev1.ConditionFalse))
		case condition == nil:
			open = append(open, fmt.Sprintf(
				"corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case condition.Status != corev1.ConditionTrue:
			open = append(open, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s",
				gate.ConditionType, condition.Status))
		}
	}

	return strings.Join(open, ", ")
}

// Release ends what [Hold] began: it adds InPlaceUpdateReady True, without reason or message, to the patch if
// the pod has the gate and the condition differs from that (IPU-132).
func Release(patch *podpatch.Patch, pod *corev1.Pod, now time.Time) {
	if !HasGate(pod) {
		return
	}

	current := Condition(pod, pub.InPlaceUpdateReady)
	if current != nil && current.Status == corev1.ConditionTrue &&
		current.Reason == "" && current.Message == "" {
		return
	}

	condition := corev1.PodCondition{
		Type: pub.InPlaceUpdateReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
	}

	if current != nil && current.Status == corev1.ConditionTrue {
		condition.LastTransitionTime = current.LastTransitionTime
	}
	patch.Condition(condition)
}
