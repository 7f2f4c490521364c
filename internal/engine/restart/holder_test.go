package restart

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// IPU-143: each request has its own entry, which stays when another request or a hook ends.
// TestWhatHooksHoldUp of CloneSets covers the entries of hooks.
func TestRequestsHaveTheirOwnEntries(t *testing.T) {
	request := func(name string) readiness.Holder {
		return Holder(&appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
	}
	const first, second = `{"userAgent":"ContainerRecreateRequest","key":"shop/a"}`,
		`{"userAgent":"ContainerRecreateRequest","key":"shop/b"}`
	const deletes, updates = `{"userAgent":"Lifecycle","key":"preDeleteHook"}`, `{"userAgent":"Lifecycle","key":"preUpdateHook"}`
	for name, test := range map[string]struct {
		message       string
		hold, release []readiness.Holder
		want          string
	}{
		"a request beside hooks": {"[" + deletes + "," + updates + "]", []readiness.Holder{request("a")}, nil, "[" + first + "," + deletes +
			"," + updates + "]"},
		"another one": {"[" + first + "]", []readiness.Holder{request("b")}, nil, "[" + first + "," + second + "]"},
		"hooks beside it": {"[" + first + "]", []readiness.Holder{readiness.PreUpdateHook, readiness.PreDeleteHook}, nil,
			"[" + first + "," + deletes + "," + updates + "]"},
		"one of two ends": {"[" + first + "," + second + "," + updates + "]", nil, []readiness.Holder{request("a")},
			"[" + second + "," + updates + "]"},
		"the hooks end": {"[" + first + "," + deletes + "," + updates + "]", nil,
			[]readiness.Holder{readiness.PreDeleteHook, readiness.PreUpdateHook}, "[" + first + "]"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: pub.KruisePodReady}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: pub.KruisePodReady, Status: corev1.ConditionFalse,
				Message: test.message, LastTransitionTime: metav1.Unix(0, 0)}}}}
		patch := &podpatch.Patch{}
		readiness.Share(patch, pod, test.hold, test.release, time.Unix(0, 0))
		body, err := patch.JSON(pod)
		if err != nil {
			t.Fatal(err)
		}
		var patched corev1.Pod
		if err := json.Unmarshal(body, &patched); err != nil {
			t.Fatal(err)
		}
		switch c := readiness.Condition(&patched, pub.KruisePodReady); {
		case c == nil:
			t.Errorf("%s: the pod lacks the condition %s", name, pub.KruisePodReady)
		case c.Status != corev1.ConditionFalse:
			t.Errorf("%s: condition %s is %s, want False", name, pub.KruisePodReady, c.Status)
		case c.Message != test.want:
			t.Errorf("%s: condition %s says %s, want %s", name, pub.KruisePodReady, c.Message, test.want)
		}
	}
}
