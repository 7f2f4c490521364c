package readiness

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

var (
	noon    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	earlier = noon.Add(-time.Hour)
)

func condition(conditionType corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
	return corev1.PodCondition{Type: conditionType, Status: status, LastTransitionTime: metav1.NewTime(earlier)}
}

func pod(conditions ...corev1.PodCondition) *corev1.Pod {
	p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: conditions}}
	p.Name, p.UID, p.ResourceVersion = "p", "u", "1"
	return p
}

func gated(p *corev1.Pod, gates ...corev1.PodConditionType) *corev1.Pod {
	for _, gate := range gates {
		p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
	}
	return p
}

func phase(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod { p.Status.Phase = phase; return p }

func state(p *corev1.Pod, state pub.LifecycleStateType) *corev1.Pod {
	p.Labels = map[string]string{pub.LifecycleState: string(state)}
	return p
}

const (
	yes = corev1.ConditionTrue
	no  = corev1.ConditionFalse
)

func TestReady(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"CS-170 running and Ready": {pod(condition(corev1.PodReady, yes)), true},
		"CS-170 in-place condition True": {pod(condition(corev1.PodReady, yes), condition(pub.InPlaceUpdateReady, yes)),
			true},
		"CS-170 not Ready":          {pod(condition(corev1.PodReady, no)), false},
		"CS-170 Ready unknown":      {pod(condition(corev1.PodReady, corev1.ConditionUnknown)), false},
		"CS-170 no Ready condition": {pod(), false},
		"CS-170 Pending":            {phase(pod(condition(corev1.PodReady, yes)), corev1.PodPending), false},
		"CS-170 Unknown":            {phase(pod(condition(corev1.PodReady, yes)), corev1.PodUnknown), false},
		"CS-170 Succeeded":          {phase(pod(condition(corev1.PodReady, yes)), corev1.PodSucceeded), false},
		"IPU-138 held, though kubelet says Ready": {pod(condition(corev1.PodReady, yes), condition(pub.InPlaceUpdateReady, no)),
			false},
		"IPU-138 in-place condition Unknown": {pod(condition(corev1.PodReady, yes),
			condition(pub.InPlaceUpdateReady, corev1.ConditionUnknown)), false},
		"IPU-138 a gate without its condition holds none": {gated(pod(condition(corev1.PodReady, yes)), pub.InPlaceUpdateReady), true},
		"CS-132 ready whatever the state":                 {state(pod(condition(corev1.PodReady, yes)), pub.LifecycleStateUpdating), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Ready(tt.pod); got != tt.want {
				t.Errorf("the pod is ready: got %t, want %t", got, tt.want)
			}
		})
	}
}

func TestAvailable(t *testing.T) {
	since := func(d time.Duration) *corev1.Pod {
		c := condition(corev1.PodReady, yes)
		c.LastTransitionTime = metav1.NewTime(noon.Add(-d))
		return pod(c)
	}
	tests := map[string]struct {
		pod   *corev1.Pod
		min   int32
		want  bool
		after time.Duration
	}{
		"CS-170 no minReadySeconds":                                 {since(0), 0, true, 0},
		"CS-170 longer than minReadySeconds":                        {since(10*time.Second + 1), 10, true, 0},
		"CS-170 exactly minReadySeconds is not longer":              {since(10 * time.Second), 10, false, time.Millisecond},
		"CS-171 minReadySeconds still run: not available, but when": {since(4 * time.Second), 10, false, 6*time.Second + time.Millisecond},
		"nobody knows since when":                                   {pod(corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}), 10, false, 0},
		"CS-170 not ready: time does not help":                      {pod(condition(corev1.PodReady, no)), 10, false, 0},
		"IPU-138 held by an in-place update": {pod(condition(corev1.PodReady, yes),
			condition(pub.InPlaceUpdateReady, no)), 0, false, 0},
		"IPU-152 Normal": {state(since(time.Minute), pub.LifecycleStateNormal), 10, true, 0},
		"IPU-152 PreparingNormal": {state(since(time.Minute), pub.LifecycleStatePreparingNormal), 0,
			false, 0},
		"IPU-152 PreparingUpdate": {state(since(time.Minute), pub.LifecycleStatePreparingUpdate), 0,
			false, 0},
		"IPU-152 Updating": {state(since(time.Minute), pub.LifecycleStateUpdating), 0, false, 0},
		"IPU-152 Updated":  {state(since(time.Minute), pub.LifecycleStateUpdated), 0, false, 0},
		"IPU-152 PreparingDelete": {state(since(time.Minute), pub.LifecycleStatePreparingDelete), 0,
			false, 0},
		"CS-347 a negative minReadySeconds is none": {since(0), -5, true, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, after := Available(tt.pod, tt.min, noon)
			if got != tt.want {
				t.Errorf("the pod is available: got %t, want %t", got, tt.want)
			}
			if after != tt.after {
				t.Errorf("the pod becomes available: after %s, want after %s", after, tt.after)
			}
			if after > 0 { // the pod must be available after that time
				if got, _ := Available(tt.pod, tt.min, noon.Add(after)); !got {
					t.Error("still not available when it was said to be")
				}
			}
		})
	}
}

// conditionsAfter applies the patch as the API server does and returns the pod's conditions.
func conditionsAfter(t *testing.T, p *corev1.Pod, patch *podpatch.Patch) []corev1.PodCondition {
	t.Helper()
	body, err := patch.JSON(p)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(before, body, corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	var after corev1.Pod
	if err := json.Unmarshal(merged, &after); err != nil {
		t.Fatal(err)
	}
	for i := range after.Status.Conditions {
		after.Status.Conditions[i].LastTransitionTime.Time = after.Status.Conditions[i].LastTransitionTime.UTC()
	}
	return after.Status.Conditions
}

func changed(c corev1.PodCondition, reason, message string) corev1.PodCondition {
	c.Reason, c.Message, c.LastTransitionTime = reason, message, metav1.NewTime(noon)
	return c
}

func TestHold(t *testing.T) {
	ready, containers := condition(corev1.PodReady, yes), condition(corev1.ContainersReady, yes)
	held := changed(condition(pub.InPlaceUpdateReady, no), ReasonStartInPlaceUpdate, "")
	heldBefore := condition(pub.InPlaceUpdateReady, no)
	heldBefore.Reason, heldBefore.Message = "Other", "kept"
	const ours = `the status of pod readiness gate "InPlaceUpdateReady" is not "True", but False`
	tests := map[string]struct {
		pod   *corev1.Pod
		empty bool
		want  []corev1.PodCondition
	}{
		"IPU-137 without the gate nothing": {pod(ready, containers), true, []corev1.PodCondition{ready, containers}},
		"IPU-134, IPU-135 held, and Ready as kubelet will conclude": {
			gated(pod(ready, containers, condition(pub.InPlaceUpdateReady, yes)), pub.InPlaceUpdateReady), false,
			[]corev1.PodCondition{changed(condition(corev1.PodReady, no), ReasonReadinessGatesNotReady, ours), containers, held}},
		"IPU-134 the condition did not exist yet": {
			gated(pod(), pub.InPlaceUpdateReady), false, []corev1.PodCondition{held}},
		"IPU-134 held already: reason and time are kept": {
			gated(pod(condition(corev1.PodReady, no), containers, heldBefore), pub.InPlaceUpdateReady), true,
			[]corev1.PodCondition{condition(corev1.PodReady, no), containers, heldBefore}},
		"IPU-081 held already, but still Ready: Ready is corrected": {
			gated(pod(ready, containers, heldBefore), pub.InPlaceUpdateReady), false,
			[]corev1.PodCondition{changed(condition(corev1.PodReady, no), ReasonReadinessGatesNotReady, ours), containers, heldBefore}},
		"IPU-135 Ready that does not exist is not made": {
			gated(pod(containers), pub.InPlaceUpdateReady), false, []corev1.PodCondition{containers, held}},
		"IPU-135 ContainersReady is not True: Ready is kubelet's": {
			gated(pod(ready, condition(corev1.ContainersReady, no)), pub.InPlaceUpdateReady), false,
			[]corev1.PodCondition{ready, condition(corev1.ContainersReady, no), held}},
		"IPU-135 the message names every gate without a True condition": {
			gated(pod(ready, containers, condition("b", no), condition("c", yes)), "a", "b", "c", pub.InPlaceUpdateReady), false,
			[]corev1.PodCondition{changed(condition(corev1.PodReady, no), ReasonReadinessGatesNotReady,
				`corresponding condition of pod readiness gate "a" does not exist., the status of pod readiness gate "b" is not "True", but False, `+ours),
				containers, condition("b", no), condition("c", yes), held}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { comparePatch(t, Hold, tt.pod, tt.empty, tt.want) })
	}
}

func TestRelease(t *testing.T) {
	admitted := changed(condition(pub.InPlaceUpdateReady, yes), "", "")
	withReason := condition(pub.InPlaceUpdateReady, yes)
	withReason.Reason, withReason.Message = "R", "M"
	tests := map[string]struct {
		pod   *corev1.Pod
		empty bool
		want  []corev1.PodCondition
	}{
		"IPU-132 without the gate nothing": {pod(condition(pub.InPlaceUpdateReady, no)), true,
			[]corev1.PodCondition{condition(pub.InPlaceUpdateReady, no)}},
		"IPU-132 a new pod": {gated(pod(), pub.InPlaceUpdateReady), false, []corev1.PodCondition{admitted}},
		"IPU-132 True already: nothing": {gated(pod(condition(pub.InPlaceUpdateReady, yes)), pub.InPlaceUpdateReady), true,
			[]corev1.PodCondition{condition(pub.InPlaceUpdateReady, yes)}},
		"IPU-132 True with a reason: it goes, the time stays": {gated(pod(withReason), pub.InPlaceUpdateReady), false,
			[]corev1.PodCondition{condition(pub.InPlaceUpdateReady, yes)}},
		"IPU-135 never Ready True: that is kubelet's": {
			gated(pod(condition(corev1.PodReady, no), condition(corev1.ContainersReady, yes),
				changed(condition(pub.InPlaceUpdateReady, no), ReasonStartInPlaceUpdate, "")), pub.InPlaceUpdateReady), false,
			[]corev1.PodCondition{condition(corev1.PodReady, no), condition(corev1.ContainersReady, yes), admitted}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { comparePatch(t, Release, tt.pod, tt.empty, tt.want) })
	}
}

func comparePatch(t *testing.T, build func(*podpatch.Patch, *corev1.Pod, time.Time), p *corev1.Pod, empty bool,
	want []corev1.PodCondition) {
	t.Helper()
	patch := &podpatch.Patch{}
	build(patch, p, noon)
	if patch.Empty() != empty {
		t.Errorf("the patch is empty: got %t, want %t: %s", patch.Empty(), empty, patch)
	}
	if !empty && patch.Subresource() != "status" {
		t.Error("conditions belong to the status subresource")
	}
	got := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, c := range conditionsAfter(t, p, patch) {
		got[c.Type] = c
	}
	wanted := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, c := range want {
		wanted[c.Type] = c
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("conditions of the pod (-want +got):\n%s", diff)
	}
}
