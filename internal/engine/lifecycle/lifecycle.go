// Package lifecycle defines the states that a pod passes through between its creation, its updates in place
// and its deletion, and the hooks with which users delay them (IPU-150 ff).
package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// State returns the lifecycle state of the pod, empty if it has none.
func State(pod *corev1.Pod) pub.LifecycleStateType {
	return pub.LifecycleStateType(pod.Labels[pub.LifecycleState])
}

// Enter adds the state and its time to the patch; they always change together (IPU-150).
func Enter(patch *podpatch.Patch, state pub.LifecycleStateType, now time.Time) {
	patch.Label(pub.LifecycleState, string(state))
	patch.Annotation(pub.LifecycleTimestamp, now.UTC().Format(time.RFC3339))
}

// Hooked reports whether any finalizer or label of the hook is on the pod. It is false if hook is nil
// (IPU-151).
func Hooked(hook *pub.LifecycleHook, pod *corev1.Pod) bool {
	if hook == nil {
		return false
	}
	if len(lacking(hook, pod)) < len(hook.FinalizersHandler) {
		return true
	}
	for key, value := range hook.LabelsHandler {
		if actual, ok := pod.Labels[key]; ok && actual == value {
			return true
		}
	}
	return false
}

// Hook adds those labels and finalizers of the hook to the patch that the pod lacks (table after IPU-152).
func Hook(patch *podpatch.Patch, hook *pub.LifecycleHook, pod *corev1.Pod) {
	patch.Finalizers(lacking(hook, pod), nil)
	for key, value := range hook.LabelsHandler {
		patch.Label(key, value)
	}
}

// FullyHooked reports whether all finalizers and labels of the hook are on the pod. It is true for a hook
// that has none, and false if hook is nil (IPU-151).
func FullyHooked(hook *pub.LifecycleHook, pod *corev1.Pod) bool {
	if hook == nil {
		return false
	}
	if len(lacking(hook, pod)) > 0 {
		return false
	}
	for key, value := range hook.LabelsHandler {
		if actual, ok := pod.Labels[key]; !ok || actual != value {
			return false
		}
	}
	return true
}

// lacking returns the finalizers of the hook that the pod does not have. Users can make both lists long, so
// its run time grows with their sum, not with their product.
func lacking(hook *pub.LifecycleHook, pod *corev1.Pod) []string {
	if len(hook.FinalizersHandler) == 0 {
		return nil
	}
	present := sets.New(pod.Finalizers...)
	return slices.DeleteFunc(slices.Clone(hook.FinalizersHandler), present.Has)
}
