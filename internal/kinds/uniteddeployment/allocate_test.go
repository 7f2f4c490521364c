package uniteddeployment

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// given are subsets a, b, c and so on with these replicas; empty for none.
func given(texts ...string) (subsets []appsv1beta1.Subset) {
	for i, text := range texts {
		s := appsv1beta1.Subset{Name: string(rune('a' + i))}
		if text != "" {
			s.Replicas = new(intstr.Parse(text))
		}
		subsets = append(subsets, s)
	}
	return subsets
}

// UD-080, UD-081, UD-082, UD-083, UD-036 (part), UD-084 (part), UD-165: fixed numbers, percentages and what
// they leave.
func TestNumbersAndPercentagesComeBeforeTheRest(t *testing.T) {
	tests := []struct {
		name     string
		subsets  []appsv1beta1.Subset
		current  []int32
		replicas int32
		want     string
	}{
		{"UD-082: growing by one", given("", "", ""), []int32{4, 3, 3}, 11, "[4 3 4]"},
		{"from nothing, equal ones by name descending", given("", "", ""), []int32{0, 0, 0}, 4, "[1 1 2]"},
		{"the most current replicas first", given("", "", ""), []int32{1, 5, 2}, 7, "[2 3 2]"},
		{"numbers and the rest", given("2", "", ""), []int32{0, 0, 0}, 7, "[2 2 3]"},
		{"half up", given("50%", ""), []int32{0, 0}, 5, "[3 2]"},
		{"33 % of 10", given("33%", ""), []int32{0, 0}, 10, "[3 7]"},
		{"percentages of 100 are all", given("33%", "33%", "34%"), []int32{0, 0, 0}, 10, "[3 3 4]"},
		{"largest fractions first", given("25%", "25%", "50%"), []int32{0, 0, 0}, 5, "[1 1 3]"},
		{"ties in the order of the topology", given("50%", "50%"), []int32{0, 0}, 5, "[3 2]"},
		{"rounded up to more than all, with one that is open", given("50%", "50%", ""), []int32{0, 0, 0}, 5, "[3 2 0]"},
		{"rounded up to more than all, of less than 100", given("10%", "10%", "10%", "10%", "10%", "10%", ""), []int32{0, 0, 0, 0, 0, 0, 9}, 5, "[1 1 1 0 0 0 2]"},
		{"more than all", given("3", "4"), []int32{1, 1}, 6, "the subsets are given 7 replicas together, more than spec.replicas, 6"},
		{"all given, less than all", given("3", "4"), []int32{1, 1}, 8, "the subsets are given 7 replicas together, less than spec.replicas, 8, and each has a fixed number"},
		{"no percentage", given("101%", ""), []int32{1, 1}, 8, `replicas of subset "a": "101%" must be an integer, or a percentage from 0% to 100%`},
		{"none", nil, nil, 3, "[]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			next, err := Specify(tt.subsets, tt.current, tt.replicas)
			got := fmt.Sprint(next)
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%s instead of %s", got, tt.want)
			}
		})
	}
}

// UD-036, UD-083: percentages that are 100 together give all replicas, for every number of them.
func TestPercentagesAreAll(t *testing.T) {
	for replicas := range int32(200) {
		next, err := Specify(given("33%", "33%", "34%"), []int32{0, 0, 0}, replicas)
		if err != nil {
			t.Errorf("%d: unexpected error: %v\n%v", replicas, err, next)
		} else if next[0]+next[1]+next[2] != replicas {
			t.Errorf("%d: replicas of all subsets: got %d, want %d\n%v\n%v", replicas, next[0]+next[1]+next[2],
				replicas, next, err)
		}
	}
	for replicas := range int32(200) { // an autoscaler may ask for any of them
		for percent := range 12 {
			subsets := given("")
			for range 8 {
				subsets = append(subsets, appsv1beta1.Subset{Name: fmt.Sprint("s", len(subsets)), Replicas: new(intstr.Parse(fmt.Sprint(percent, "%")))})
			}
			next, err := Specify(subsets, make([]int32, len(subsets)), replicas)
			sum := int32(0)
			for _, n := range next {
				sum += n
			}
			if err != nil {
				t.Errorf("%d, %d %%: %v", replicas, percent, err)
			}
			if sum != replicas {
				t.Errorf("%d, %d %%: got %v, in all %d", replicas, percent, next, sum)
			}
		}
	}
	if n, err := Scaled(new(intstr.FromString("100%")), 1<<31-1); err != nil {
		t.Errorf("unexpected error: %v\n%d", err, n)
	} else if n != 1<<31-1 {
		t.Errorf("100%% of the largest number: got %d, want %d\n%v", n, 1<<31-1, err)
	}
}

// UD-010 (part), UD-011 (part), UD-015 (part): replicas that are absent.
func TestReplicasThatAreAbsent(t *testing.T) {
	for want, subsets := range map[int32][]appsv1beta1.Subset{1: given("50%", "50%"), 5: given("2", "3")} {
		if got := Replicas(nil, subsets); got != want {
			t.Errorf("%d instead of %d", got, want)
		}
	}
	if got := Replicas(nil, nil); got != 1 {
		t.Errorf("another number: replicas of nothing: got %d, want 1", got)
	} else if got := Replicas(new(int32(0)), given("2")); got != 0 {
		t.Errorf(`another number: replicas that are given as 0: got %d, want 0`, got)
	} else if got := Replicas(nil, given("2", "")); got != 1 {
		t.Errorf(`another number: replicas that are not given: got %d, want 1`, got)
	}
}

// UD-091, UD-092, UD-093, UD-167: between minima and maxima; the numbers of a number of replicas are the same
// whether it grew or shrank.
func TestMinimaAndMaxima(t *testing.T) {
	bounds := []Bounds{{2, 5}, {2, 5}, {2, Unbounded}}
	for replicas, want := range map[int32]string{6: "[2 2 2]", 9: "[5 2 2]", 13: "[5 5 3]", 5: "[2 2 1]", 0: "[0 0 0]", 1: "[1 0 0]"} {
		next, rest := Stretch(bounds, replicas)
		if fmt.Sprint(next) != want {
			t.Errorf("%d: stretched replicas: got %q, want %q", replicas, fmt.Sprint(next), want)
		}
		if rest != 0 {
			t.Errorf("%d: rest: got %d, want 0; %v, rest %d, instead of %s", replicas, rest, next, rest, want)
		}
	}
}

// UD-090: bounds are scaled half-up; a minimum above its maximum is an error.
func TestBounds(t *testing.T) {
	s := appsv1beta1.Subset{Name: "a", MinReplicas: new(intstr.FromString("33%")), MaxReplicas: new(intstr.FromString("50%"))}
	if b, err := BoundsOf(&s, 5); err != nil {
		t.Errorf("unexpected error: %v\n%v", err, b)
	} else if b != (Bounds{2, 3}) {
		t.Errorf("bounds of the subset: got %+v, want %+v\n%v", b, Bounds{2, 3}, err)
	}
	if b, err := BoundsOf(&appsv1beta1.Subset{}, 5); err != nil {
		t.Errorf("unexpected error: %v\n%v", err, b)
	} else if b != (Bounds{0, Unbounded}) {
		t.Errorf("bounds of a subset without any: got %+v, want %+v\n%v", b, Bounds{0, Unbounded}, err)
	}
	s.MinReplicas = new(intstr.FromInt32(4))
	if _, err := BoundsOf(&s, 5); err == nil {
		t.Error("error: got nil, want an error")
	} else if !strings.Contains(err.Error(), `minReplicas of subset "a" is 4, more than its maxReplicas, 3`) {
		t.Errorf("error: got %q, want it to contain %q", err.Error(),
			`minReplicas of subset "a" is 4, more than its maxReplicas, 3`)
	}
}

// UD-098, UD-099 (part): bounds narrowed by what can be scheduled.
func TestBoundsAreNarrowedByWhatCanBeScheduled(t *testing.T) {
	type zone struct {
		bounds Bounds
		stuck  bool
		ready  int32
	}
	open := Bounds{0, Unbounded}
	tests := []struct {
		name     string
		zones    []zone
		replicas int32
		want     string
	}{
		{"all of the first stuck", []zone{{Bounds{0, 5}, true, 0}, {open, false, 5}}, 10, "[0 10]"},
		{"its minimum holds", []zone{{Bounds{3, 5}, true, 0}, {open, false, 5}}, 10, "[3 7]"},
		{"two of five stuck", []zone{{Bounds{0, 5}, true, 3}, {open, false, 5}}, 10, "[3 7]"},
		{"recovered, ready ones stay", []zone{{Bounds{0, 5}, false, 0}, {open, false, 10}}, 10, "[0 10]"},
		{"recovered, it gets new ones", []zone{{Bounds{0, 5}, false, 0}, {open, false, 10}}, 12, "[2 10]"},
		{"shrinking", []zone{{open, false, 2}, {open, false, 6}}, 4, "[2 2]"},
		{"all are stuck: the last waits", []zone{{Bounds{0, 5}, true, 1}, {open, true, 2}}, 10, "[1 9]"},
		{"kept ones do not take a minimum", []zone{{open, false, 5}, {Bounds{2, Unbounded}, false, 2}}, 5, "[3 2]"},
		{"more ready than the maximum", []zone{{Bounds{0, 3}, true, 5}, {open, false, 0}}, 6, "[3 3]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			own, narrowed := []Bounds{}, []Bounds{}
			for _, z := range tt.zones {
				own, narrowed = append(own, z.bounds), append(narrowed, Narrow(z.bounds, z.stuck, z.ready))
			}
			if got := fmt.Sprint(Adapt(own, narrowed, tt.replicas)); got != tt.want {
				t.Errorf("%s instead of %s", got, tt.want)
			}
		})
	}
}

// UD-119 (part), UD-120, UD-121, UD-123 (part), UD-124 (part): substitutes for reserved pods.
func TestReservedPodsHaveSubstitutes(t *testing.T) {
	// reserved of so many replicas that a subset has; none if it has no child.
	room := func(most int32, has, reserved int32) Room {
		r := Room{Bounds: Bounds{0, most}, Capacity: Unbounded, Keep: -1}
		if reserved > 0 {
			r.Capacity, r.Keep = has-reserved, has
		}
		return r
	}
	far := int32(Unbounded)
	tests := []struct {
		name     string
		rooms    []Room
		replicas int32
		want     string
	}{
		{"begin", []Room{room(far, 0, 0), room(far, 0, 0), room(far, 0, 0)}, 3, "[3 0 0]"},
		{"all of a", []Room{room(far, 3, 3), room(far, 0, 0), room(far, 0, 0)}, 3, "[3 3 0]"},
		{"all of a and b", []Room{room(far, 3, 3), room(far, 3, 3), room(far, 0, 0)}, 3, "[3 3 3]"},
		{"b healthy", []Room{room(far, 3, 3), room(far, 3, 0), room(far, 3, 0)}, 3, "[3 3 0]"},
		{"a recovers two", []Room{room(far, 3, 1), room(far, 3, 0), room(far, 0, 0)}, 3, "[3 1 0]"},
		{"all well", []Room{room(far, 3, 0), room(far, 1, 0), room(far, 0, 0)}, 3, "[3 0 0]"},
		{"maxima", []Room{room(2, 0, 0), room(2, 0, 0), room(far, 0, 0)}, 6, "[2 2 2]"},
		{"maxima, b stuck", []Room{room(2, 2, 0), room(2, 2, 2), room(far, 2, 0)}, 6, "[2 2 4]"},
		{"maxima, one healthy", []Room{room(2, 2, 0), room(2, 2, 1), room(far, 4, 0)}, 6, "[2 2 3]"},
		{"maxima, both", []Room{room(2, 2, 0), room(2, 2, 0), room(far, 3, 0)}, 6, "[2 2 2]"},
		{"growing leaves what is reserved", []Room{room(far, 3, 3), room(far, 3, 0)}, 5, "[3 5]"},
		{"fewer than are reserved", []Room{room(far, 3, 3), room(far, 3, 0)}, 2, "[2 2]"},
		{"a lowered maximum", []Room{room(1, 3, 3), room(far, 3, 0)}, 3, "[1 3]"},
		{"a minimum is not undercut", []Room{{Bounds{2, far}, 0, 1}, room(far, 3, 0)}, 3, "[2 3]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := fmt.Sprint(Reserve(tt.rooms, tt.replicas)); got != tt.want {
				t.Errorf("%s instead of %s", got, tt.want)
			}
		})
	}
}

// Whatever the bounds: all replicas are given if the last subset may have any number, maxima hold but for
// minima, and what is reserved has exactly as many substitutes.
func TestAllocationsAreWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n, replicas := 1+r.IntN(5), int32(r.IntN(30))
		bounds, own, narrowed, rooms, sum := make([]Bounds, n), []Bounds{}, []Bounds{}, []Room{}, int32(0)
		for i := range bounds {
			low := int32(r.IntN(4))
			bounds[i] = Bounds{low, low + int32(r.IntN(6))}
			if i == n-1 {
				bounds[i].Max = Unbounded
			}
			own, narrowed = append(own, bounds[i]), append(narrowed, Narrow(bounds[i], r.IntN(2) == 0, int32(r.IntN(8))))
			room := Room{Bounds: bounds[i], Capacity: Unbounded, Keep: -1}
			if has := int32(r.IntN(8)); i < n-1 && r.IntN(2) == 0 {
				room.Capacity, room.Keep = has-int32(r.IntN(int(has)+1)), has
			}
			rooms = append(rooms, room)
		}
		next, rest := Stretch(bounds, replicas)
		for i := range next {
			if sum += next[i]; next[i] > bounds[i].Max {
				t.Fatalf("%v of %d: %v", bounds, replicas, next)
			}
		}
		again, _ := Stretch(bounds, replicas)
		if sum+rest != replicas {
			t.Fatalf("sum+rest: got %d, want %d; %v of %d: %v", sum+rest, replicas, bounds, replicas, next)
		}
		if rest != 0 {
			t.Fatalf("rest: got %d, want 0; %v of %d: %v", rest, bounds, replicas, next)
		}
		if !slices.Equal(next, again) {
			t.Fatalf("next: got %v, want %v; %v of %d: %v", next, again, bounds, replicas, next)
		}
		sum = 0
		for i, got := range Adapt(own, narrowed, replicas) {
			if sum += got; got > own[i].Max {
				t.Fatalf("%v of %d: %v", narrowed, replicas, got)
			}
		}
		if sum != replicas {
			t.Fatalf("%v of %d: %d", narrowed, replicas, sum)
		}
		sum = 0
		for i, got := range Reserve(rooms, replicas) {
			if sum += min(got, rooms[i].Capacity); got > max(rooms[i].Max, rooms[i].Min) {
				t.Fatalf("%v of %d: %d is above the maximum", rooms, replicas, got)
			}
		}
		if sum != replicas {
			t.Fatalf("%v of %d: %d count", rooms, replicas, sum)
		}
	}
}
