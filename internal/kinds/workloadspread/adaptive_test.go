package workloadspread

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

func TestCritical(t *testing.T) {
	seconds := func(n int32) *int32 { return &n }
	type strategy = appsv1beta1.WorkloadSpreadScheduleStrategy
	for name, test := range map[string]struct {
		strategy strategy
		want     time.Duration
	}{
		"WS-010 WS-170 nothing said": {strategy{}, 0},
		"WS-170 fixed": {strategy{Type: "Fixed",
			Adaptive: &appsv1beta1.AdaptiveWorkloadSpreadStrategy{RescheduleCriticalSeconds: seconds(5)}}, 0},
		"WS-170 no options": {strategy{Type: "Adaptive"}, 0},
		"WS-170 no time":    {strategy{Type: "Adaptive", Adaptive: &appsv1beta1.AdaptiveWorkloadSpreadStrategy{}}, 0},
		"WS-170 zero": {strategy{Type: "Adaptive",
			Adaptive: &appsv1beta1.AdaptiveWorkloadSpreadStrategy{RescheduleCriticalSeconds: seconds(0)}}, 0},
		"WS-170 adaptive": {strategy{Type: "Adaptive",
			Adaptive: &appsv1beta1.AdaptiveWorkloadSpreadStrategy{RescheduleCriticalSeconds: seconds(5)}}, 5 * time.Second},
		"WS-018 no simulation": {strategy{Type: "Adaptive",
			Adaptive: &appsv1beta1.AdaptiveWorkloadSpreadStrategy{RescheduleCriticalSeconds: seconds(5), DisableSimulationSchedule: true}},
			5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			spread := workloadspreadtest.Spread()
			spread.Spec.ScheduleStrategy = test.strategy
			got, on := Critical(spread)
			if got != test.want {
				t.Errorf("critical time: got %v, want %v", got, test.want)
			}
			if on != (test.want > 0) {
				t.Errorf("on: got %t, want %t", on, test.want > 0)
			}
		})
	}
}

func TestUnscheduled(t *testing.T) {
	condition := func(status corev1.ConditionStatus, reason string) workloadspreadtest.PodOption {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: status, Reason: reason}}
		}
	}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		want  bool
		again time.Time
	}{
		"WS-171 too long": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-61), workloadspreadtest.Unschedulable), true,
			time.Time{}},
		"WS-171 not longer than": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-60), workloadspreadtest.Unschedulable),
			false, workloadspreadtest.At(0).Add(moment)},
		"WS-171 checked again at that moment": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-20), workloadspreadtest.Homeless), false,
			workloadspreadtest.At(40).Add(moment)},
		"WS-171 no condition yet": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-61), workloadspreadtest.Homeless), false,
			time.Time{}},
		"WS-171 scheduling goes on": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-61), workloadspreadtest.Homeless,
			condition("False", "SchedulingGated")), false,
			time.Time{}},
		"WS-171 it has a node": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-61), workloadspreadtest.Unschedulable,
			func(p *corev1.Pod) { p.Spec.NodeName = "n" }),
			false, time.Time{}},
		"WS-171 it is ending": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-61), workloadspreadtest.Unschedulable,
			workloadspreadtest.Ending), false, time.Time{}},
		"WS-171 it runs": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-61), workloadspreadtest.Unschedulable,
			workloadspreadtest.Phase(corev1.PodRunning)), false, time.Time{}},
		"WS-171 it failed": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-61), workloadspreadtest.Unschedulable,
			workloadspreadtest.Phase(corev1.PodFailed)), false, time.Time{}},
		"WS-171 scheduled, its node not seen yet": {workloadspreadtest.Pod("p", workloadspreadtest.Born(-61), workloadspreadtest.Homeless,
			condition("True", "")), false, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, again := unscheduled(test.pod, time.Minute, workloadspreadtest.Clock)
			if got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
			if !again.Equal(test.again) {
				t.Errorf("again: got %v, want %v", again, test.again)
			}
		})
	}
}

func TestNextCondition(t *testing.T) {
	condition := func(status metav1.ConditionStatus, reason string, since int) *metav1.Condition {
		return &metav1.Condition{Type: "Schedulable", Status: status, Reason: reason, LastTransitionTime: workloadspreadtest.At(since)}
	}
	for name, test := range map[string]struct {
		old       *metav1.Condition
		last      bool
		stuck     int
		now       time.Duration
		want      *metav1.Condition
		recovered bool
		until     time.Time
	}{
		"WS-173 none before, nothing stuck": {want: condition("True", "Sufficient", 0)},
		"WS-173 none before, one stuck":     {stuck: 1, want: condition("False", "PodUnschedulable", 0), until: workloadspreadtest.At(300).Time},
		"WS-173 WS-179 stays true": {old: condition("True", "Sufficient", -50),
			want: condition("True", "Sufficient", -50)},
		"WS-173 becomes false": {old: condition("True", "Sufficient", -50), stuck: 2, want: condition("False",
			"PodUnschedulable", 0), until: workloadspreadtest.At(300).Time},
		"WS-204 the window never ends early": {old: condition("True", "Sufficient", -50), stuck: 2, now: 1,
			want: condition("False", "PodUnschedulable", 1), until: workloadspreadtest.At(301).Time},
		"WS-174 stays false though nothing is stuck": {old: condition("False", "PodUnschedulable", -299), want: condition("False",
			"PodUnschedulable", -299), until: workloadspreadtest.At(1).Time},
		"WS-174 is not prolonged": {old: condition("False", "PodUnschedulable", -100), stuck: 3,
			want: condition("False", "PodUnschedulable", -100), until: workloadspreadtest.At(200).Time},
		"WS-174 the end of the window": {old: condition("False", "PodUnschedulable", -300), want: condition("True",
			"Sufficient", 0), recovered: true},
		"WS-174 not while a pod is stuck": {old: condition("False", "PodUnschedulable", -400), stuck: 1,
			want: condition("False", "PodUnschedulable", -400)},
		"WS-172 the last one is always schedulable": {last: true, stuck: 3, want: condition("True", "Sufficient", 0)},
		"WS-172 it became the last one while passed over": {last: true, old: condition("False", "PodUnschedulable", -10),
			want: condition("True", "Sufficient", 0), recovered: true},
		"WS-179 another writer's state counts as none": {old: condition("Unknown", "x", -10), want: condition("True", "Sufficient", 0)},
	} {
		t.Run(name, func(t *testing.T) {
			got, recovered, until := nextCondition(test.old, test.last, test.stuck, time.Minute, UnschedulableWindow,
				workloadspreadtest.Clock.Add(test.now))
			told := test.want.Status == "False" && (test.old == nil || test.old.Status != "False")
			if (got.Message != "") != told {
				t.Errorf("message: got %q, want one: %t", got.Message, told)
			}
			got.Message = ""
			if diff := cmp.Diff(*test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if recovered != test.recovered {
				t.Errorf("recovered: got %t, want %t", recovered, test.recovered)
			}
			if !until.Equal(test.until) {
				t.Errorf("until: got %v, want %v", until, test.until)
			}
		})
	}
	// WS-199: the window is an option.
	c, recovered, _ := nextCondition(condition("False", "PodUnschedulable", -600), false, 0, time.Minute, time.Hour,
		workloadspreadtest.Clock)
	if c.Status != "False" {
		t.Errorf("status: got %q, want %q\n%v", c.Status, "False", c)
	}
	if recovered {
		t.Errorf("recovered: got true, want false\n%v", c)
	}
}
