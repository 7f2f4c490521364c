package imagepull

import (
	"context"
	"slices"
	"testing"
)

// turns returns the names of the pulls that may run, sorted.
func turns(places map[string]*place) []string {
	var have []string
	for name, p := range places {
		select {
		case <-p.turn:
			have = append(have, name)
		default:
		}
	}
	slices.Sort(have)
	return have
}

// IMG-133 (part): a free place goes to a pull of the namespace that has the fewest places, and among these to
// the first. A pull for several namespaces counts for the one that has the fewest.
func TestWhoseTurnItIs(t *testing.T) {
	s := newSlots(3)
	places := map[string]*place{}
	join := func(name string, namespaces ...string) { places[name] = s.join(namespaces) }
	join("a1", "a")
	join("a2", "a")
	join("a3", "a") // two of three places are all that a namespace gets
	join("b1", "b")
	join("b2", "b")
	join("c1", "c")
	join("c2", "a", "c")
	if got := turns(places); !slices.Equal(got, []string{"a1", "a2", "b1"}) {
		t.Fatalf("turns at first: got %v, want a1, a2 and b1", got)
	}
	for _, step := range []struct {
		leaves string
		next   string
	}{{"a1", "c1"}, {"a2", "a3"}, {"b1", "b2"}, {"c1", "c2"}} {
		before := turns(places)
		s.leave(places[step.leaves])
		got := turns(places)
		if len(got) != len(before)+1 {
			t.Fatalf("turns when %s has left: got %v, want one more than %v", step.leaves, got, before)
		}
		if !slices.Contains(got, step.next) {
			t.Fatalf("turns when %s has left: got %v, want %s among them", step.leaves, got, step.next)
		}
	}
	if places["c2"].counts != "c" {
		t.Errorf("a pull for a, which has one, and c, which has none, counts for %s, want c",
			places["c2"].counts)
	}
}

// If namespaces have equally many places, the first pull is next; and with no limit all pulls run.
func TestWhoComesFirst(t *testing.T) {
	s := newSlots(1)
	places := map[string]*place{"1": s.join([]string{"a"}), "2": s.join([]string{"b"}), "3": s.join([]string{"c"})}
	s.leave(places["1"])
	if got := turns(places); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("turns with as many places of each: got %v, want 1 and 2", got)
	}
	for _, n := range []int{0, -1} {
		unlimited, all := newSlots(n), map[string]*place{}
		for _, name := range []string{"1", "2", "3", "4"} {
			all[name] = unlimited.join([]string{"a"})
		}
		if got := turns(all); len(got) != 4 {
			t.Errorf("turns with %d places, which is no limit: got %v, want all 4", n, got)
		}
		unlimited.leave(all["1"])
		if p := unlimited.join([]string{"a"}); !unlimited.wait(context.Background(), p) {
			t.Error("no turn")
		}
	}
}
