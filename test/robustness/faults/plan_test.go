package faults

import (
	"reflect"
	"testing"
	"time"
)

func TestTheSameSeedGivesTheSameFaults(t *testing.T) {
	one, again := Plan(7, time.Hour, 500, true, nil), Plan(7, time.Hour, 500, true, nil)
	if !reflect.DeepEqual(one, again) {
		t.Error("two plans of one seed differ")
	}
	if other := Plan(8, time.Hour, 500, true, nil); reflect.DeepEqual(one, other) {
		t.Error("plans of two seeds are the same")
	}
}

func TestAnHourHasFiveHundredFaultsOfEveryKind(t *testing.T) {
	for seed := range uint64(20) {
		plan := Plan(seed, time.Hour, 520, true, nil)
		if len(plan) < 500 {
			t.Errorf("seed %d has %d faults", seed, len(plan))
		}
		kinds, overlaps := map[string]int{}, 0
		for i, s := range plan {
			kinds[s.Kind]++
			if i > 0 && plan[i-1].At+plan[i-1].Length > s.At {
				overlaps++
			}
		}
		for _, c := range choices(true, nil) {
			if kinds[c.kind] == 0 {
				t.Errorf("seed %d has no fault %s", seed, c.kind)
			}
		}
		if overlaps == 0 {
			t.Errorf("seed %d has no faults that overlap", seed)
		}
	}
}

func TestNoFaultHitsWhatAnotherHasNotLeft(t *testing.T) {
	busy := map[string]time.Duration{}
	for _, s := range Plan(3, time.Hour, 520, true, nil) {
		if busy[s.Target] > s.At {
			t.Errorf("%s of %s begins at %s, and the one before ends at %s", s.Kind, s.Target, s.At, busy[s.Target])
		}
		busy[s.Target] = s.At + s.Length
	}
}

// Real nodes have faults of their own, and nothing simulates them.
func TestRealNodesHaveFaultsOfTheirOwn(t *testing.T) {
	hit := map[string]int{}
	for _, s := range Plan(3, time.Hour, 300, false, []string{"node1", "node2"}) {
		hit[s.Kind+" "+s.Target]++
	}
	for _, want := range []string{"kill node1-kubelet", "pause node2-kubelet", "kill node2-containerd", "kill node1-daemon", "pause node1-daemon",
		"cut node1-network", "stall node2-network", "crash pods"} {
		if hit[want] == 0 {
			t.Errorf("no %s in %v", want, hit)
		}
	}
	if hit["kill kwok"]+hit["pause kwok"] > 0 {
		t.Errorf("simulated nodes are hit: %v", hit)
	}
}
