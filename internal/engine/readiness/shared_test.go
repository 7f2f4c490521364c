package readiness

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// TestShare: several writers hold a pod through one condition (IPU-017, IPU-141 (part), IPU-142,
// IPU-143 (part), IPU-191, IPU-316, IPU-317).
func TestShare(t *testing.T) {
	const recreate, hook = `{"userAgent":"ContainerRecreateRequest","key":"a/b"}`, `{"userAgent":"Lifecycle","key":"preUpdateHook"}`
	yes, no := corev1.ConditionTrue, corev1.ConditionFalse
	shared := func(status corev1.ConditionStatus, message string) corev1.PodCondition {
		return corev1.PodCondition{Type: pub.KruisePodReady, Status: status, Message: message, LastTransitionTime: metav1.NewTime(earlier)}
	}
	now := func(c corev1.PodCondition) corev1.PodCondition { c.LastTransitionTime = metav1.NewTime(noon); return c }
	closed := corev1.PodCondition{Type: corev1.PodReady, Status: no, Reason: ReasonReadinessGatesNotReady,
		LastTransitionTime: metav1.NewTime(noon),
		Message:            `the status of pod readiness gate "KruisePodReady" is not "True", but False`}
	serving := []corev1.PodCondition{condition(corev1.PodReady, yes), condition(corev1.ContainersReady, yes)}
	hold, release := []Holder{PreUpdateHook}, []Holder{PreUpdateHook, PreDeleteHook}
	tests := map[string]struct {
		hold, release []Holder
		pod           *corev1.Pod
		empty         bool
		want          []corev1.PodCondition
	}{
		"IPU-142 without the gate nothing": {hold, nil, pod(serving...), true, serving},
		"IPU-141 the gate without the condition": {nil, release, gated(pod(), pub.KruisePodReady), false,
			[]corev1.PodCondition{now(shared(yes, ""))}},
		"IPU-142, IPU-317 the first writer creates the condition": {hold, nil, gated(pod(serving...), pub.KruisePodReady), false,
			[]corev1.PodCondition{closed, serving[1], now(shared(no, "["+hook+"]"))}},
		"IPU-142 a second writer, sorted": {hold, nil, gated(pod(shared(no, "["+recreate+"]")), pub.KruisePodReady), false,
			[]corev1.PodCondition{shared(no, "["+recreate+","+hook+"]")}},
		"IPU-142 an existing entry": {hold, nil, gated(pod(shared(no, "["+hook+"]")), pub.KruisePodReady), true,
			[]corev1.PodCondition{shared(no, "["+hook+"]")}},
		"IPU-142 one of two entries goes": {nil, release, gated(pod(shared(no, "["+recreate+","+hook+"]")), pub.KruisePodReady), false,
			[]corev1.PodCondition{shared(no, "["+recreate+"]")}},
		"IPU-142 the last entry goes": {nil, release, gated(pod(shared(no, "["+hook+"]")), pub.KruisePodReady), false,
			[]corev1.PodCondition{now(shared(yes, ""))}},
		"IPU-142 an absent entry": {nil, release, gated(pod(shared(yes, "")), pub.KruisePodReady), true,
			[]corev1.PodCondition{shared(yes, "")}},
		"IPU-142 a message that cannot be read": {nil, release, gated(pod(shared(no, "maintenance")), pub.KruisePodReady), true,
			[]corev1.PodCondition{shared(no, "maintenance")}},
		"IPU-317 an empty status is mended": {nil, release, gated(pod(shared("", "")), pub.KruisePodReady), false,
			[]corev1.PodCondition{now(shared(yes, ""))}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			comparePatch(t, func(patch *podpatch.Patch, p *corev1.Pod, at time.Time) { Share(patch, p, tt.hold, tt.release, at) }, tt.pod,
				tt.empty, tt.want)
		})
	}
}
