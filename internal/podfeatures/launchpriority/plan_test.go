package launchpriority

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/podfeatures/launchpriority/launchprioritytest"
)

func TestPlan(t *testing.T) {
	ordered := []int{0, -1, -2}
	policy := func(p corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) launchprioritytest.PodOption {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].RestartPolicy, pod.Spec.Containers[0].RestartPolicyRules = &p, rules
		}
	}
	onExit := func(operator corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes}}
	}
	foreign, unlabelled, going := launchprioritytest.ConfigMap("u", ""), launchprioritytest.ConfigMap("u", ""),
		launchprioritytest.ConfigMap("u", "p_0")
	foreign.OwnerReferences, unlabelled.Labels, unlabelled.Annotations = nil, nil, nil
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	elsewhere := launchprioritytest.ConfigMap("u", "")
	elsewhere.OwnerReferences[0].Kind = "CloneSet"
	cases := map[string]struct {
		pod     *corev1.Pod
		barrier *metav1.PartialObjectMetadata
		want    Plan
	}{
		"ND-136, ND-137: the first key comes with the ConfigMap": {launchprioritytest.Pod(ordered,
			func(p *corev1.Pod) { p.Status = corev1.PodStatus{} }), nil,
			Plan{Action: Create, Keys: []string{"p_0"}, Added: []string{"p_0"},
				Why: "ConfigMap p-barrier comes with p_0: a (0) may start, b (-1), c (-2) wait for a (0) to be ready"}},
		"ND-122: running is not started": {launchprioritytest.Pod(ordered, launchprioritytest.Running(false, 0)),
			launchprioritytest.ConfigMap("u", "p_0"),
			Plan{Keys: []string{"p_0"}, Why: "a (0) may start, b (-1), c (-2) wait for a (0) to be ready"}},
		"ND-137: the next key": {launchprioritytest.Pod(ordered, launchprioritytest.Running(true, 0)), launchprioritytest.ConfigMap("u", "p_0"),
			Plan{Action: Release, Keys: []string{"p_0", "p_-1"}, Added: []string{"p_-1"},
				Why: "ConfigMap p-barrier gets p_-1: a (0), b (-1) may start, c (-2) wait for b (-1) to be ready"}},
		"ND-138: the last key": {launchprioritytest.Pod(ordered, launchprioritytest.Running(true, 0, 1)),
			launchprioritytest.ConfigMap("u", "p_0,p_-1"),
			Plan{Action: Release, Keys: []string{"p_0", "p_-1", "p_-2"}, Added: []string{"p_-2"}, Complete: true,
				Why: "ConfigMap p-barrier gets p_-2: a (0), b (-1), c (-2) may start"}},
		"ND-138: the manager died before the mark": {launchprioritytest.Pod(ordered, launchprioritytest.Running(true, 0, 1)),
			launchprioritytest.ConfigMap("u", "p_0,p_-1,p_-2"),
			Plan{Keys: []string{"p_0", "p_-1", "p_-2"}, Complete: true, Why: "a (0), b (-1), c (-2) may start"}},
		"ND-121: equal ones together": {launchprioritytest.Pod([]int{0, 5, 5}, launchprioritytest.Running(true, 1)),
			launchprioritytest.ConfigMap("u", "p_5"),
			Plan{Keys: []string{"p_5"}, Why: "b (5), c (5) may start, a (0) wait for c (5) to be ready"}},
		"a key is not taken back when a container of higher priority falls back": {launchprioritytest.Pod(ordered,
			launchprioritytest.Running(false, 0), launchprioritytest.Running(true, 1)),
			launchprioritytest.ConfigMap("u", "p_0,p_-1"),
			Plan{Keys: []string{"p_0", "p_-1"}, Why: "a (0), b (-1) may start, c (-2) wait for a (0) to be ready"}},
		"ND-135: nothing if all are ready": {launchprioritytest.Pod(ordered, launchprioritytest.Running(true, 0, 1, 2), func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
		}), nil, Plan{}},
		"ND-135: nothing for a completed pod": {launchprioritytest.Pod(ordered, launchprioritytest.Finished,
			launchprioritytest.Running(false, 0, 1, 2)), nil, Plan{}},
		"ND-143: nothing for a finished pod": {launchprioritytest.Pod(ordered, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), nil,
			Plan{}},
		"ND-143: nothing for a pod that goes": {launchprioritytest.Pod(ordered, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }),
			nil,
			Plan{}},
		"ND-143: nothing for a pod that is done": {launchprioritytest.Pod(ordered, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
			nil,
			Plan{}},
		"ND-139: an earlier pod's ConfigMap": {launchprioritytest.Pod(ordered), launchprioritytest.ConfigMap("former", "p_0,p_-1,p_-2"),
			Plan{Action: Reset, Keys: []string{"p_0"}, Added: []string{"p_0"},
				Why: "ConfigMap p-barrier is left from an earlier pod and starts anew with p_0: a (0) may start, b (-1), c (-2) wait for a (0) to be ready"}},
		"ND-140: a container that is done": {launchprioritytest.Pod(ordered, launchprioritytest.Ended(0, corev1.RestartPolicyOnFailure, 0)),
			launchprioritytest.ConfigMap("u", "p_0"),
			Plan{Action: Release, Keys: []string{"p_0", "p_-1"}, Added: []string{"p_-1"},
				Why: "ConfigMap p-barrier gets p_-1: a (0), b (-1) may start, c (-2) wait for b (-1) to be ready"}},
		"ND-140: one that comes again is not done": {launchprioritytest.Pod(ordered, launchprioritytest.Ended(0, corev1.RestartPolicyAlways, 0)),
			launchprioritytest.ConfigMap("u", "p_0"),
			Plan{Keys: []string{"p_0"}, Why: "a (0) may start, b (-1), c (-2) wait for a (0) to be ready"}},
		"ND-140: its own policy counts": {launchprioritytest.Pod([]int{1, 0}, launchprioritytest.Ended(0, corev1.RestartPolicyAlways, 0),
			policy(corev1.ContainerRestartPolicyNever)), launchprioritytest.ConfigMap("u", "p_1"),
			Plan{Action: Release, Keys: []string{"p_1", "p_0"}, Added: []string{"p_0"}, Complete: true,
				Why: "ConfigMap p-barrier gets p_0: a (1), b (0) may start"}},
		"ND-140: and its rules": {launchprioritytest.Pod([]int{1, 0}, launchprioritytest.Ended(0, corev1.RestartPolicyNever, 0),
			policy(corev1.ContainerRestartPolicyNever,
				onExit("In", 0, 3))), launchprioritytest.ConfigMap("u", "p_1"),
			Plan{Keys: []string{"p_1"}, Why: "a (1) may start, b (0) wait for a (1) to be ready"}},
		"ND-140: rules for other codes": {launchprioritytest.Pod([]int{1, 0}, launchprioritytest.Ended(0, corev1.RestartPolicyNever, 0),
			policy(corev1.ContainerRestartPolicyNever, onExit("NotIn", 0))), launchprioritytest.ConfigMap("u", "p_1"),
			Plan{Action: Release, Keys: []string{"p_1", "p_0"}, Added: []string{"p_0"}, Complete: true,
				Why: "ConfigMap p-barrier gets p_0: a (1), b (0) may start"}},
		"one that failed for good is told": {launchprioritytest.Pod([]int{1, 0}, launchprioritytest.Ended(2, corev1.RestartPolicyNever, 0)),
			launchprioritytest.ConfigMap("u", "p_1"),
			Plan{Keys: []string{"p_1"}, Why: "a (1) may start, b (0) wait for a (1) to be ready",
				Blocked: "b (0) never start: a (1) failed and will not be restarted"}},
		"ND-142: a lost ConfigMap has the keys that it had": {launchprioritytest.Pod(ordered, launchprioritytest.Running(false, 0),
			launchprioritytest.Running(true, 1)), nil,
			Plan{Action: Create, Keys: []string{"p_0", "p_-1"}, Added: []string{"p_0", "p_-1"}, Restores: true,
				Why: "ConfigMap p-barrier comes with p_0, p_-1: a (0), b (-1) may start, c (-2) wait for a (0) to be ready"}},
		"ND-142: a completed pod gets all keys when one needs it": {launchprioritytest.Pod(ordered, launchprioritytest.Finished,
			launchprioritytest.Running(true, 0, 2)), nil,
			Plan{Action: Create, Keys: []string{"p_0", "p_-1", "p_-2"}, Added: []string{"p_0", "p_-1", "p_-2"}, Restores: true,
				Why: "ConfigMap p-barrier comes with p_0, p_-1, p_-2: a (0), b (-1), c (-2) may start"}},
		"ND-142: one that crashed before has run": {launchprioritytest.Pod(ordered,
			func(p *corev1.Pod) { p.Status.ContainerStatuses[1].RestartCount = 1 }), nil,
			Plan{Action: Create, Keys: []string{"p_0", "p_-1"}, Added: []string{"p_0", "p_-1"}, Restores: true,
				Why: "ConfigMap p-barrier comes with p_0, p_-1: a (0), b (-1) may start, c (-2) wait for a (0), b (-1) to be ready"}},
		"ND-142: it is being deleted": {launchprioritytest.Pod(ordered, launchprioritytest.Running(true, 0)), going,
			Plan{Keys: []string{"p_0", "p_-1"}, Restores: true, After: whileDeleted,
				Why: "ConfigMap p-barrier is being deleted and comes again after that: a (0), b (-1) may start, c (-2) wait for b (-1) to be ready"}},
		"ND-144: nobody's ConfigMap": {launchprioritytest.Pod([]int{1, 0}), foreign,
			Plan{Action: Refuse, Keys: []string{"p_1"}, After: whileRefused,
				Why:     "ConfigMap p-barrier is not of this pod, and is not written to: delete it, and the containers start",
				Blocked: "ConfigMap p-barrier is not of this pod, and is not written to: delete it, and the containers start"}},
		"ND-144: another kind's ConfigMap": {launchprioritytest.Pod([]int{1, 0}, launchprioritytest.Running(true, 0)), elsewhere,
			Plan{Action: Refuse, Keys: []string{"p_1", "p_0"}, Restores: true, After: whileRefused,
				Why:     "ConfigMap p-barrier is not of this pod, and is not written to: delete it, and the containers start",
				Blocked: "ConfigMap p-barrier is not of this pod, and is not written to: delete it, and the containers start"}},
		"one that the reference wrote gets our label": {launchprioritytest.Pod([]int{1, 0}), unlabelled,
			Plan{Action: Release, Keys: []string{"p_1"}, Added: []string{"p_1"},
				Why: "ConfigMap p-barrier gets p_1: a (1) may start, b (0) wait for a (1) to be ready"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			got := NewPlan(Snapshot{Pod: test.pod, Barrier: test.barrier})
			if test.want.Why == "" {
				test.want.Why = "no container waits for its launch priority"
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if concerns := Concerns(test.pod); concerns != (test.want.Keys != nil) {
				t.Errorf("its events are looked at: %v", concerns)
			}
		})
	}
}

// ND-132, ND-195 (#1413): references written by hand are no barriers, and crash nothing.
func TestMalformedBarriersAreNone(t *testing.T) {
	for name, env := range map[string]corev1.EnvVar{
		"a short key":    launchprioritytest.BarrierEnv("p-barrier", "p"),
		"no key":         launchprioritytest.BarrierEnv("p-barrier", ""),
		"no number":      launchprioritytest.BarrierEnv("p-barrier", "p_"),
		"words":          launchprioritytest.BarrierEnv("p-barrier", "p_high"),
		"another form":   launchprioritytest.BarrierEnv("p-barrier", "p_+1"),
		"too large":      launchprioritytest.BarrierEnv("p-barrier", "p_"+strings.Repeat("9", 30)),
		"another map":    launchprioritytest.BarrierEnv("other-barrier", "p_1"),
		"a value":        {Name: pub.ContainerBarrierEnv, Value: "p_1"},
		"nothing at all": {Name: pub.ContainerBarrierEnv, ValueFrom: &corev1.EnvVarSource{}},
		"another name":   {Name: "X", ValueFrom: launchprioritytest.BarrierEnv("p-barrier", "p_1").ValueFrom},
	} {
		t.Run(name, func(t *testing.T) {
			pod := launchprioritytest.Pod([]int{5})
			pod.Spec.Containers[0].Env = []corev1.EnvVar{env}
			plan := NewPlan(Snapshot{Pod: pod})
			if Held(pod) {
				t.Errorf("Held(pod): got true, want false\n%+v", plan)
			}
			if Concerns(pod) {
				t.Errorf("Concerns(pod): got true, want false\n%+v", plan)
			}
			if !plan.Idle() {
				t.Errorf("plan.Idle(): got false, want true\n%+v", plan)
			}
			pod = launchprioritytest.Pod([]int{5, 0})
			pod.Spec.Containers[1].Env = []corev1.EnvVar{env}
			if plan := NewPlan(Snapshot{Pod: pod}); len(plan.Keys) != 1 {
				t.Errorf("beside a good one: len(plan.Keys): got %d, want 1\n%+v", len(plan.Keys), plan)
			} else if plan.Keys[0] != "p_5" {
				t.Errorf("beside a good one: plan.Keys[0]: got %q, want %q\n%+v", plan.Keys[0], "p_5", plan)
			} else if !plan.Complete {
				t.Errorf("beside a good one: plan.Complete: got false, want true\n%+v", plan)
			}
		})
	}
}

// ND-135 (part), ND-141: a pod concerns the controller while one of its containers waits for its key, which
// it does with reason CreateContainerConfigError, and not when all are ready, whatever its other conditions
// say.
func TestWhichPodsConcernTheController(t *testing.T) {
	condition := func(of corev1.PodConditionType, status corev1.ConditionStatus) launchprioritytest.PodOption {
		return func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: of, Status: status})
		}
	}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"launching":                {launchprioritytest.Pod([]int{2, 1}), true},
		"its containers are ready": {launchprioritytest.Pod([]int{2, 1}, condition(corev1.ContainersReady, corev1.ConditionTrue)), false},
		"they are not":             {launchprioritytest.Pod([]int{2, 1}, condition(corev1.ContainersReady, corev1.ConditionFalse)), true},
		"it is scheduled":          {launchprioritytest.Pod([]int{2, 1}, condition(corev1.PodScheduled, corev1.ConditionTrue)), true},
		"scheduled, then ready": {launchprioritytest.Pod([]int{2, 1}, condition(corev1.PodScheduled, corev1.ConditionTrue),
			condition(corev1.ContainersReady, corev1.ConditionTrue)), false},
		"one runs":           {launchprioritytest.Pod([]int{2, 1}, launchprioritytest.Running(true, 0)), true},
		"both run":           {launchprioritytest.Pod([]int{2, 1}, launchprioritytest.Running(true, 0, 1)), false},
		"without priorities": {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}, false},
		"being deleted": {launchprioritytest.Pod([]int{2, 1}, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }),
			false},
		"ended": {launchprioritytest.Pod([]int{2, 1}, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }),
			false},
		"failed": {launchprioritytest.Pod([]int{2, 1}, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }),
			false},
		"with an unknown, no condition": {launchprioritytest.Pod([]int{2, 1}, condition(corev1.ContainersReady, corev1.ConditionUnknown)), true},
	} {
		if got := Concerns(tt.pod); got != tt.want {
			t.Errorf("%s: Concerns(tt.pod): got %t, want %t", name, got, tt.want)
		}
	}
}
