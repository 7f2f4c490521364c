package readiness

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// Holder identifies a writer that holds a pod not ready through the condition KruisePodReady (IPU-142).
type Holder struct {
	UserAgent string `json:"userAgent"`
	Key       string `json:"key"`
}

// These are the holders for lifecycle hooks with markPodNotReady (IPU-143).
var (
	PreDeleteHook = Holder{"Lifecycle", "preDeleteHook"}
	PreUpdateHook = Holder{"Lifecycle", "preUpdateHook"}
)

// Share adds the condition KruisePodReady to the patch so that it holds the pod for the writers in hold, but
// not for those in release. Other writers keep their entries. A pod with the gate and without the condition
// gets it (IPU-141, IPU-142). Nothing is added for pods without the gate, or if nothing would change.
func Share(patch *podpatch.Patch, pod *corev1.Pod, hold, release []Holder, now time.Time) {
	if !hasGate(pod, pub.KruisePodReady) {
		return
	}

	current := Condition(pod, pub.KruisePodReady)
	var before []Holder
	if current != nil && current.Message != "" && json.Unmarshal([]byte(current.Message), &before) != nil {
		if current.Status == corev1.ConditionFalse {
			return // an unreadable condition continues to hold the pod
		}
		before = nil
	}

	after := slices.DeleteFunc(slices.Concat(before, hold),
		func(h Holder) bool { return slices.Contains(release, h) })
	slices.SortFunc(after, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.UserAgent, b.UserAgent), cmp.Compare(a.Key, b.Key))
	})

	after = slices.Compact(after)

	next := corev1.PodCondition{
		Type: pub.KruisePodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
	}

	if len(after) > 0 {
		text, _ := json.Marshal(after) // encoding strings cannot fail
		next.Status, next.Message = corev1.ConditionFalse, string(text)
	}

	if current != nil && current.Status == next.Status {
		if slices.Equal(before, after) {
			return
		}
		next.LastTransitionTime = current.LastTransitionTime
	}

	patch.Condition(next)
	if next.Status == corev1.ConditionFalse {
		notReady(patch, pod, pub.KruisePodReady, now)
	}
}
