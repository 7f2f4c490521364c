package podplan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OPS-099 (part): what holds a workload, from the verdicts about its pods: the rule that the rollout waits
// for, and the pods that it waits for; nothing where it waits only for what the user asked for.
func TestWaits(t *testing.T) {
	type pod struct {
		action    Action
		reason    Reason
		available bool
	}
	for name, tt := range map[string]struct {
		out     Plan
		deleted bool
		pods    []pod
		want    string // reason: message
		named   int
	}{
		"nothing":                 {pods: []pod{{Keep, ReasonUpToDate, true}}},
		"a failure to create":     {out: Plan{ScaleError: "quota", UpdateError: "no"}, want: "FailedScale: quota"},
		"a failure to update":     {out: Plan{UpdateError: "no", ClaimsAwaited: "c"}, want: "FailedUpdate: no"},
		"claims":                  {out: Plan{ClaimsAwaited: "c", ScaleLimited: "l"}, want: "WaitingForClaims: c"},
		"scaleStrategy":           {out: Plan{ScaleLimited: "l"}, want: "ScaleUpLimited: l"},
		"being deleted":           {out: Plan{ScaleError: "quota"}, deleted: true},
		"a pod that is not ready": {pods: []pod{{Wait, ReasonNotReady, false}, {Keep, ReasonUpToDate, true}}, want: "PodsNotReady: 1 of 2 pods waited for", named: 1},
		"a pod that updates":      {pods: []pod{{Wait, ReasonUpdating, false}, {Wait, ReasonUnscheduled, false}}, want: "PodsNotReady: 2 of 2 pods waited for", named: 2},
		"a hook":                  {pods: []pod{{Wait, ReasonLifecycleHook, false}}, want: "LifecycleHook: 1 of 1 pod waited for", named: 1},
		"a hook that acts":        {pods: []pod{{Patch, ReasonLifecycleHook, false}}},
		"the first of two rules":  {pods: []pod{{Wait, ReasonLifecycleHook, false}, {Wait, ReasonVolumes, false}}, want: "LifecycleHook: 2 of 2 pods waited for", named: 2},
		"the budget": {pods: []pod{{Wait, ReasonMaxUnavailable, true}, {Wait, ReasonMaxUnavailable, true}, {Wait, ReasonNotReady, false}},
			want: "MaxUnavailable: of pod 0", named: 1},
		"a budget of all, whoever comes first": {pods: []pod{{Wait, ReasonMaxUnavailable, true}, {Wait, ReasonBudget, true}, {Wait, ReasonBudget, true}},
			want: "PodUnavailableBudget: of pod 1"},
		"the budget, and nobody uses it":     {pods: []pod{{Wait, ReasonMaxUnavailable, true}}, want: "MaxUnavailable: of pod 0"},
		"the budget, used by one that waits": {pods: []pod{{Wait, ReasonMaxUnavailable, false}}, want: "MaxUnavailable: of pod 0", named: 1},
		"the budget, used by one below the partition": {pods: []pod{{Wait, ReasonMaxUnavailable, true}, {Keep, ReasonPartition, false}},
			want: "MaxUnavailable: of pod 0", named: 1},
		"the order, held by one below the partition": {pods: []pod{{Keep, ReasonPartition, false}, {Wait, ReasonOrdered, true}},
			want: "OrderedReady: of pod 1", named: 1},
		"the budget, used by one below the partition and by what was asked for": {pods: []pod{{Wait, ReasonMinReadySeconds, false},
			{Wait, ReasonMaxUnavailable, true}, {Keep, ReasonPartition, false}}, want: "MaxUnavailable: of pod 1", named: 1},
		"one below the partition, and nothing waits": {pods: []pod{{Keep, ReasonPartition, false}, {Keep, ReasonUpToDate, true}}},
		"asked for": {pods: []pod{{Wait, ReasonPaused, true}, {Wait, ReasonGracePeriod, false}, {Wait, ReasonOnDelete, false}}},
		"the budget is used by what was asked for": {pods: []pod{{Wait, ReasonMinReadySeconds, false}, {Wait, ReasonMaxUnavailable, true}}},
		"a pause uses nothing":                     {pods: []pod{{Wait, ReasonPaused, true}, {Wait, ReasonMaxUnavailable, true}}, want: "MaxUnavailable: of pod 1"},
		"scaling comes first":                      {pods: []pod{{Wait, ReasonScaling, true}, {Wait, ReasonNotReady, false}}, want: "PodsNotReady: 1 of 2 pods waited for", named: 1},
	} {
		t.Run(name, func(t *testing.T) {
			out := tt.out
			p := New(&Workload{Deleted: tt.deleted}, &Snapshot{}, &out)
			for i, of := range tt.pods {
				name := string(rune('0' + i))
				info := &Pod{}
				info.Pod, info.Available = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, of.available
				p.Members = append(p.Members, info)
				p.Decide(info.Pod, of.action, of.reason, "of pod %s", name)
			}
			got, named := "", 0
			if wait := p.waits(); wait != nil {
				got, named = wait.Reason+": "+wait.Message, strings.Count(wait.String(), ". pod ")
			}
			if got != tt.want {
				t.Errorf("what holds the workload: got %q, want %q", got, tt.want)
			}
			if named != tt.named {
				t.Errorf("pods that are named: got %d, want %d", named, tt.named)
			}
		})
	}
}
