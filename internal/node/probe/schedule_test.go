package probe

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func key(namespace string, n int) Key { return Key{types.UID(namespace), fmt.Sprint("p#", n)} }

// Probes have a rhythm of their own; an attempt that takes longer than the period leaves times out. All of a
// node begin at random times after a start, and at once later.
func TestTheRhythmOfAProbe(t *testing.T) {
	s := NewSchedule(noon)
	s.Put(key("a", 1), "a", 10*time.Second, false, noon)
	turn, _ := s.Next(noon)
	if turn == nil {
		t.Fatal("a probe that is new waits")
	}
	other, wait := s.Next(noon.Add(time.Hour))
	if other != nil {
		t.Error("a probe is carried out twice at once")
	}
	if wait != 0 {
		t.Errorf("the turn after that of a probe that is under way: after %s, want none", wait)
	}
	s.Done(turn, noon.Add(3*time.Second))
	if _, wait := s.Next(noon.Add(3 * time.Second)); wait != 7*time.Second {
		t.Errorf("the next turn after 3s of 10s: after %s, want 7s", wait)
	}
	turn, _ = s.Next(noon.Add(10 * time.Second))
	s.Done(turn, noon.Add(34*time.Second))
	if _, wait := s.Next(noon.Add(34 * time.Second)); wait != 6*time.Second {
		t.Errorf("the next turn after one that took 24s: after %s, want 6s", wait)
	}
	s.Put(key("a", 1), "a", 2*time.Second, false, noon.Add(34*time.Second)) // PPM-081: counts from now on
	if _, wait := s.Next(noon.Add(34 * time.Second)); wait != 2*time.Second {
		t.Errorf("the next turn after the period became 2s: after %s, want 2s", wait)
	}
	s.Remove(key("a", 1))
	turn, wait = s.Next(noon.Add(time.Hour))
	if turn != nil {
		t.Error("a probe that was removed is carried out")
	}
	if wait != 0 {
		t.Errorf("the turn of a probe that was removed: after %s, want none", wait)
	}
	if len(s.entries) > 0 {
		t.Errorf("probes that are scheduled after the last was removed: got %d, want 0", len(s.entries))
	}

	s, times := NewSchedule(noon), map[time.Duration]bool{}
	for i := range 100 {
		s.Put(key("a", i), "a", time.Minute, true, noon)
		at := s.entries[key("a", i)].at.Sub(noon)
		if times[at] = true; at < 0 || at >= time.Minute {
			t.Errorf("a probe begins %s after the start, want within a minute", at)
		}
	}
	if len(times) < 90 {
		t.Errorf("times at which 100 probes begin: got %d, want 90 at least", len(times))
	}
}

// oneTenantsProbesDoNotHoldUpAnothers: one tenant has a thousand probes of each second, each of which never
// ends in its time; another one has ten. These come in time. No namespace has more than its places, and no
// more attempts begin than the pace allows.
func oneTenantsProbesDoNotHoldUpAnothers(t *testing.T) {
	s := NewSchedule(noon)
	for i := range 1000 {
		s.Put(key("greedy", i), "greedy", time.Second, false, noon)
	}
	for i := range 10 {
		s.Put(key("modest", i), "modest", 5*time.Second, false, noon)
	}
	type end struct {
		turn *Turn
		at   time.Time
	}
	var ends []end
	begun := map[string]int{}
	latest := time.Duration(0)
	for now := noon; now.Before(noon.Add(time.Minute)); now = now.Add(time.Millisecond) {
		var left []end
		for _, e := range ends {
			if e.at.After(now) {
				left = append(left, e)
				continue
			}
			s.Done(e.turn, now)
		}
		ends = left
		for {
			turn, _ := s.Next(now)
			if turn == nil {
				break
			}
			begun[turn.entry.namespace]++
			takes := 50 * time.Millisecond
			if turn.entry.namespace == "greedy" {
				takes = time.Minute
			} else {
				latest = max(latest, now.Sub(turn.entry.at))
			}
			ends = append(ends, end{turn, now.Add(takes)})
		}
		if n := s.running["greedy"]; n > mostOfNamespace {
			t.Fatalf("attempts of the greedy tenant at once: got %d, want %d at most", n, mostOfNamespace)
		}
	}
	if begun["modest"] != 120 {
		t.Errorf("attempts of the modest tenant: got %d, want 120", begun["modest"])
	}
	if latest > 100*time.Millisecond {
		t.Errorf("the latest attempt of the modest tenant: %s late, want 100ms at most", latest)
	}
	waiting, running := s.Waiting()
	if waiting != 984 {
		t.Errorf("attempts that wait: got %d, want 984", waiting)
	}
	if running != mostOfNamespace {
		t.Errorf("attempts that run: got %d, want %d", running, mostOfNamespace)
	}
}

// thePaceOfANode: many probes that are quick begin no faster than the pace, and none is left out for good:
// all of a namespace take turns.
func thePaceOfANode(t *testing.T) {
	s := NewSchedule(noon)
	for i := range 2000 {
		namespace := fmt.Sprint("n", i%40)
		s.Put(Key{types.UID(namespace), fmt.Sprint(i)}, namespace, time.Second, false, noon)
	}
	begun, each := 0, map[Key]int{}
	for now := noon; now.Before(noon.Add(20 * time.Second)); now = now.Add(time.Millisecond) {
		for {
			turn, wait := s.Next(now)
			if turn == nil {
				if wait < 0 {
					t.Fatalf("the next turn is due %s ago, and nobody gets it", -wait)
				}
				break
			}
			begun++
			each[turn.Key]++
			s.Done(turn, now)
		}
	}
	if begun < 3900 || begun > 4100 { // 200 a second
		t.Errorf("attempts in 20s: got %d, want 3900 to 4100", begun)
	}
	if len(each) != 2000 {
		t.Errorf("probes that had a turn: got %d, want 2000", len(each))
	}
}

// placesOfANode: probes that never end take 64 places, 16 of each namespace, and what a probe has missed is
// not made up for.
func placesOfANode(t *testing.T) {
	s := NewSchedule(noon)
	for i := range 2000 {
		s.Put(key(fmt.Sprint("n", i%100), i), fmt.Sprint("n", i%100), time.Second, false, noon)
	}
	var turns []*Turn
	for now := noon; now.Before(noon.Add(10 * time.Second)); now = now.Add(time.Millisecond) {
		for turn, _ := s.Next(now); turn != nil; turn, _ = s.Next(now) {
			turns = append(turns, turn)
		}
	}
	if len(turns) != 64 {
		t.Errorf("attempts at once: got %d, want 64", len(turns))
	}
	for namespace, n := range s.running {
		if n > 16 {
			t.Errorf("attempts of %s at once: got %d, want 16 at most", namespace, n)
		}
	}
	s = NewSchedule(noon)
	s.Put(key("a", 1), "a", time.Second, false, noon)
	turn, _ := s.Next(noon)
	s.Done(turn, noon.Add(time.Minute))
	begun := 0
	for now := noon.Add(time.Minute); now.Before(noon.Add(70 * time.Second)); now = now.Add(time.Millisecond) {
		if turn, _ := s.Next(now); turn != nil {
			begun++
			s.Done(turn, now)
		}
	}
	if begun != 9 && begun != 10 {
		t.Errorf("attempts in the ten seconds after a minute's: got %d, want 9 or 10", begun)
	}
}

// aTenantWithSomeNamespaces: a tenant has a handful of namespaces, each with many probes that never end in
// their time. The probes of others come in time.
func aTenantWithSomeNamespaces(t *testing.T) {
	s := NewSchedule(noon)
	for i := range 600 {
		namespace := fmt.Sprint("greedy-", i%6)
		s.Put(key(namespace, i), namespace, time.Second, false, noon)
	}
	for i := range 10 {
		s.Put(key("modest", i), "modest", 5*time.Second, false, noon)
	}
	var running []*Turn
	latest, begun := time.Duration(0), 0
	for now := noon; now.Before(noon.Add(time.Minute)); now = now.Add(time.Millisecond) {
		for {
			turn, _ := s.Next(now)
			if turn == nil {
				break
			}
			if turn.entry.namespace != "modest" {
				running = append(running, turn)
				continue
			}
			begun++
			latest = max(latest, now.Sub(turn.entry.at))
			s.Done(turn, now)
		}
	}
	if begun != 120 {
		t.Errorf("attempts of another tenant in a minute, beside %d that do not end: got %d, want 120",
			len(running), begun)
	}
	if latest > 200*time.Millisecond {
		t.Errorf("the latest attempt of another tenant: %s late, want 200ms at most", latest)
	}
}
