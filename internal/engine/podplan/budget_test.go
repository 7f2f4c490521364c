package podplan

import (
	"testing"

	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// CS-121 (part), CS-124 (part), CS-125 (part), OPS-099 (part): what a budget refuses, and in which words with
// which numbers.
func TestWhatABudgetRefuses(t *testing.T) {
	limits := rollout.Limits{Replicas: 5, MaxUnavailable: 2}
	up, down := &Pod{}, &Pod{}
	up.Available = true
	for name, tt := range map[string]struct {
		budget Budget
		limits rollout.Limits
		pod    *Pod
		reason Reason
		words  string
	}{
		"there is room":        {Budget{spare: 1, total: 2}, limits, up, "", ""},
		"for one that is down": {Budget{moving: 1, total: 2}, limits, down, "", ""},
		"nobody can be spared": {Budget{total: 2}, limits, up, ReasonMaxUnavailable,
			"3 of 5 pods must stay available (maxUnavailable 2), and only 3 are"},
		"and even fewer are there": {Budget{spare: -2, total: 2}, limits, up, ReasonMaxUnavailable,
			"3 of 5 pods must stay available (maxUnavailable 2), and only 1 is"},
		"who is down costs none": {Budget{total: 2}, limits, down, "", ""},
		"all are moving": {Budget{spare: 1, moving: 2, total: 2}, limits, up, ReasonUpdateUnhealthy,
			"waiting for 2 updated pods to become available; 2 pods at a time (maxUnavailable 2)"},
		"some leave": {Budget{spare: 1, moving: 3, leaving: 1, total: 2}, limits, down, ReasonUpdateUnhealthy,
			"waiting for 2 updated pods to become available and 1 pod to be deleted; 2 pods at a time (maxUnavailable 2)"},
		"all leave": {Budget{spare: 1, moving: 2, leaving: 2, total: 2}, limits, up, ReasonUpdateUnhealthy,
			"waiting for 2 pods to be deleted; 2 pods at a time (maxUnavailable 2)"},
		"pods are missing": {Budget{spare: 1, total: 0}, limits, up, ReasonUpdateUnhealthy,
			"waiting for 2 missing pods to be created; 0 pods at a time (maxUnavailable 2)"},
		"more than may be": {Budget{spare: 1, total: -1}, limits, up, ReasonUpdateUnhealthy,
			"waiting for 3 missing pods to be created; 0 pods at a time (maxUnavailable 2)"},
		"but who is down moves": {Budget{spare: 1, total: -1}, limits, down, "", ""},
		"one by one": {Budget{spare: 1, moving: 1, total: -1}, limits, down, ReasonUpdateUnhealthy,
			"waiting for 1 updated pod to become available; 1 pod at a time (maxUnavailable 2)"},
		"nothing is missing": {Budget{spare: 1}, rollout.Limits{Replicas: 5}, up, ReasonUpdateUnhealthy,
			"waiting for a pod above the replicas; 0 pods at a time (maxUnavailable 0)"},
	} {
		b := tt.budget
		for range 2 { // the second answer has the words of the first
			reason, words := b.refuse(tt.pod, tt.limits)
			if reason != tt.reason {
				t.Errorf("%s: refused for the reason %q, want %q", name, reason, tt.reason)
			}
			if words != tt.words {
				t.Errorf("%s: refused with %q, want %q", name, words, tt.words)
			}
		}
	}
	b := Budget{moving: 1, total: -1, spare: 1}
	for range 2 { // one that is down and one that is up are refused with different numbers, in any order
		for pod, want := range map[*Pod]string{up: "0 pods at a time", down: "1 pod at a time"} {
			want = "waiting for 1 updated pod to become available; " + want + " (maxUnavailable 2)"
			if _, words := b.refuse(pod, limits); words != want {
				t.Errorf("a pod that is available (%t): refused with %q, want %q", pod.Available, words, want)
			}
		}
	}
	b = Budget{spare: 2, total: 3}
	b.take(up)
	b.take(down)
	if b.spare != 1 {
		t.Errorf("to spare after one that was up and one that was down: got %d, want 1", b.spare)
	}
	if b.moving != 2 {
		t.Errorf("moving after one that was up and one that was down: got %d, want 2", b.moving)
	}
}

// CS-121 (part): who counts for the budget: pods on their way to the target, and those that leave; the place
// of an available one that is specified for deletion is reserved.
func TestWhoCountsForTheBudget(t *testing.T) {
	pod := func(specified, preparing, available, updated bool) *Pod {
		info := &Pod{Specified: specified, New: updated}
		info.Preparing, info.Available = preparing, available
		return info
	}
	for name, tt := range map[string]struct {
		pod             *Pod
		moving, leaving int
		spare           int
	}{
		"old and up":                 {pod(false, false, true, false), 0, 0, 0},
		"old and down":               {pod(false, false, false, false), 0, 0, 0},
		"updated and up":             {pod(false, false, true, true), 0, 0, 0},
		"updated and down":           {pod(false, false, false, true), 1, 0, 0},
		"specified and up":           {pod(true, false, true, false), 0, 0, -1},
		"specified and down":         {pod(true, false, false, false), 1, 1, 0},
		"preparing its deletion":     {pod(false, true, false, true), 1, 1, 0},
		"preparing, and yet it's up": {pod(false, true, true, false), 1, 1, 0},
	} {
		p := &Planner{in: &Snapshot{}, out: &Plan{Limits: rollout.Limits{Replicas: 1, MaxUnavailable: 2}}, Members: []*Pod{tt.pod}}
		before := p.Spare()
		b := p.NewBudget(true)
		if b.moving != tt.moving {
			t.Errorf("%s: %d pods are moving, want %d", name, b.moving, tt.moving)
		}
		if b.leaving != tt.leaving {
			t.Errorf("%s: %d pods are leaving, want %d", name, b.leaving, tt.leaving)
		}
		if b.spare != before+tt.spare {
			t.Errorf("%s: %d to spare, want %d", name, b.spare, before+tt.spare)
		}
		if b.total != 2 {
			t.Errorf("%s: %d in all, want 2", name, b.total)
		}
	}
}
