package faults

import (
	"reflect"
	"testing"
	"time"
)

func TestTheSameSeedGivesTheSameFaults(t *testing.T) {
	one, again := Plan(7, time.Hour, 500, true), Plan(7, time.Hour, 500, true)
	if !reflect.DeepEqual(one, again) {
		t.Error("two plans of one seed differ")
	}
	if other := Plan(8, time.Hour, 500, true); reflect.DeepEqual(one, other) {
		t.Error("plans of two seeds are the same")
	}
}

func TestAnHourHasFiveHundredFaultsOfEveryKind(t *testing.T) {
	for seed := range uint64(20) {
		plan := Plan(seed, time.Hour, 520, true)
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
		for _, c := range choices(true) {
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
	for _, s := range Plan(3, time.Hour, 520, true) {
		if busy[s.Target] > s.At {
			t.Errorf("%s of %s begins at %s, and the one before ends at %s", s.Kind, s.Target, s.At, busy[s.Target])
		}
		busy[s.Target] = s.At + s.Length
	}
}
