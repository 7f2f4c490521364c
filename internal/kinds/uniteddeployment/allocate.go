package uniteddeployment

import (
	"cmp"
	"fmt"
	"slices"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Specify splits replicas by the fixed numbers of the subsets, and what they leave evenly over the others, of
// which those that have the most now get the remainder (UD-080 to UD-084).
func Specify(subsets []appsv1beta1.Subset, current []int32, replicas int32) ([]int32, error) {
	numbers, err := Numbers(subsets, replicas)
	if err != nil {
		return nil, err
	}

	sum, given := Sum(numbers)
	if sum > int64(replicas) {
		return nil, fmt.Errorf("the subsets are given %d replicas together, more than spec.replicas, %d",
			sum, replicas)
	}
	if given == len(subsets) {
		if given > 0 && sum < int64(replicas) {
			return nil, fmt.Errorf(
				"the subsets are given %d replicas together, less than spec.replicas, %d, and each has a fixed number",
				sum, replicas)
		}
	}
	next := make([]int32, len(subsets))
	var open []int
	for i, n := range numbers {
		if n != nil {
			next[i] = *n
		} else {
			open = append(open, i)
		}
	}

	if len(open) == 0 {
		return next, nil
	}

	rest := replicas - int32(sum)
	slices.SortFunc(open, func(a, b int) int {
		return cmp.Or(cmp.Compare(current[b], current[a]), cmp.Compare(subsets[b].Name, subsets[a].Name))
	})
	for at, i := range open {
		next[i] = rest / int32(len(open))
		if int32(at) < rest%int32(len(open)) {
			next[i]++
		}
	}

	return next, nil
}

// Stretch splits replicas between minima and maxima: in the order of the subsets each gets its minimum, and
// then, in the same order, up to its maximum. It returns what no subset may have (UD-091, UD-093).
func Stretch(bounds []Bounds, replicas int32) (next []int32, rest int32) {
	next, rest = make([]int32, len(bounds)), replicas
	for i := range bounds {
		next[i] = min(bounds[i].Min, rest)
		rest -= next[i]
	}
	for i := range bounds {
		more := min(max(bounds[i].Max-next[i], 0), rest)
		next[i] += more
		rest -= more
	}
	return next, rest
}

// Narrow are the bounds of a subset with so many settled pods: one that is unschedulable gets no others, and
// one that is schedulable keeps them (UD-098).
func Narrow(b Bounds, unschedulable bool, settled int32) Bounds {
	kept := min(settled, b.Max)
	if unschedulable {
		return Bounds{max(b.Min, kept), kept}
	}
	return Bounds{max(b.Min, kept), b.Max}
}

// Adapt splits replicas between narrowed bounds: first each subset gets its own minimum, which what others
// keep must not take from it. What they leave goes to the last subsets that may have it by their own, and
// waits there (UD-098).
func Adapt(own, narrowed []Bounds, replicas int32) []int32 {
	next, rest := make([]int32, len(own)), replicas
	upTo := func(bound func(i int) int32) {
		for i := range next {
			more := min(max(bound(i)-next[i], 0), rest)
			next[i] += more
			rest -= more
		}
	}
	upTo(func(i int) int32 { return own[i].Min })
	upTo(func(i int) int32 { return narrowed[i].Min })
	upTo(func(i int) int32 { return narrowed[i].Max })
	for i := len(own) - 1; i >= 0 && rest > 0; i-- {
		more := min(max(own[i].Max-next[i], 0), rest)
		next[i] += more
		rest -= more
	}

	return next
}

// Room is how many pods of a subset count, now and at most.
type Room struct {
	Bounds
	// Capacity is how many of its replicas are not reserved; Unbounded where nothing is known to be wrong
	// with new ones (UD-119).
	Capacity int32
	// Keep is how many it has, if some are reserved: it is given no more (UD-121). Else negative.
	Keep int32
}

// Reserve splits replicas so that each reserved pod has a substitute in a later subset (UD-120, UD-121).
func Reserve(rooms []Room, replicas int32) []int32 {
	next, capacity, rest := make([]int32, len(rooms)), make([]int32, len(rooms)), replicas
	for i := range rooms {
		capacity[i] = rooms[i].Capacity
	}

	assign := func(i int, target int32) {
		add := min(max(target-next[i], 0), rest)
		next[i] += add
		rest -= min(add, max(capacity[i], 0)) // what exceeds it is assigned a second time further down
		capacity[i] -= add
	}

	for i := 0; i < len(rooms) && rest > 0; i++ {
		assign(i, rooms[i].Min)
	}

	for i := 0; i < len(rooms) && rest > 0; i++ {
		target := rooms[i].Max
		if rooms[i].Keep >= 0 {
			target = min(rooms[i].Keep, rooms[i].Max)
		}
		assign(i, target)
	}

	return next
}
