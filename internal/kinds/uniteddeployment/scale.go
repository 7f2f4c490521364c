package uniteddeployment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Unbounded is the maximum of a subset that has none.
const Unbounded = math.MaxInt32

// Percent reads a percentage from 0 to 100, such as "30%".
func Percent(text string) (int64, error) {
	digits, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || percent > 100 {
		return 0, fmt.Errorf("%q must be an integer, or a percentage from 0%% to 100%%", text)
	}
	return int64(percent), nil
}

// Scaled is a number, or a percentage of all replicas, rounded to the nearest, .5 upwards (UD-083, UD-090).
func Scaled(value *intstr.IntOrString, replicas int32) (int32, error) {
	if value.Type == intstr.Int {
		if value.IntVal < 0 {
			return 0, fmt.Errorf("%d must be 0 or more", value.IntVal)
		}
		return value.IntVal, nil
	}
	percent, err := Percent(value.StrVal)
	return int32((int64(max(replicas, 0))*percent + 50) / 100), err
}

// Bounds are the minimum and the maximum of a subset.
type Bounds struct{ Min, Max int32 }

// BoundsOf are those of a subset (UD-090).
func BoundsOf(s *appsv1beta1.Subset, replicas int32) (b Bounds, err error) {
	b.Max = Unbounded
	if s.MinReplicas != nil {
		if b.Min, err = Scaled(s.MinReplicas, replicas); err != nil {
			return b, fmt.Errorf("minReplicas of subset %q: %w", s.Name, err)
		}
	}
	if s.MaxReplicas != nil {
		if b.Max, err = Scaled(s.MaxReplicas, replicas); err != nil {
			return b, fmt.Errorf("maxReplicas of subset %q: %w", s.Name, err)
		}
	}
	if b.Min > b.Max {
		return b, fmt.Errorf("minReplicas of subset %q is %d, more than its maxReplicas, %d", s.Name,
			b.Min, b.Max)
	}

	return b, nil
}

// Elastic tells whether some subset has a minimum or a maximum.
func Elastic(subsets []appsv1beta1.Subset) bool {
	return slices.ContainsFunc(subsets,
		func(s appsv1beta1.Subset) bool { return s.MinReplicas != nil || s.MaxReplicas != nil })
}

// Numbers are the replicas of the subsets that give some, nil for each other. Where all that are given are
// percentages, of 100 together in all subsets, or of no more than 100 and too many when rounded, each share
// is rounded down, and the missing ones go to the largest fractions, the first of equal ones (UD-036,
// UD-083).
func Numbers(subsets []appsv1beta1.Subset, replicas int32) ([]*int32, error) {
	numbers, percents, all := make([]*int32, len(subsets)), int64(0), int64(0)
	var order []int
	for i := range subsets {
		given := subsets[i].Replicas
		if given == nil {
			continue
		}
		n, err := Scaled(given, replicas)
		if err != nil {
			return nil, fmt.Errorf("replicas of subset %q: %w", subsets[i].Name, err)
		}
		numbers[i] = &n
		all += int64(n)
		if given.Type == intstr.String {
			percent, _ := Percent(given.StrVal)
			percents, order = percents+percent, append(order, i)
		} else {
			percents = math.MinInt32 // not all are percentages
		}
	}

	if percents < 0 || percents > 100 ||
		all <= int64(replicas) && (percents != 100 || len(order) < len(subsets)) {
		return numbers, nil
	}

	fractions, missing := make([]int64, len(subsets)), (int64(max(replicas, 0))*percents+50)/100
	for _, i := range order {
		percent, _ := Percent(subsets[i].Replicas.StrVal)
		share := int64(max(replicas, 0)) * percent
		*numbers[i], fractions[i] = int32(share/100), share%100
		missing -= share / 100
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(fractions[b], fractions[a]) })
	for _, i := range order[:max(missing, 0)] {
		*numbers[i]++
	}

	return numbers, nil
}

// Sum is the sum of the numbers that are given, and how many are.
func Sum(numbers []*int32) (sum int64, given int) {
	for _, n := range numbers {
		if n != nil {
			sum += int64(*n)
			given++
		}
	}
	return sum, given
}

// Replicas is the number of pods in all subsets together. Where it is absent it is the sum of the subsets if
// all give numbers, else 1 (UD-010, UD-011, UD-015).
func Replicas(replicas *int32, subsets []appsv1beta1.Subset) int32 {
	if replicas != nil {
		return max(*replicas, 0)
	}

	sum := int64(0)
	for i := range subsets {
		if given := subsets[i].Replicas; given == nil || given.Type != intstr.Int {
			return 1
		} else {
			sum += int64(max(given.IntVal, 0))
		}
	}

	if len(subsets) == 0 {
		return 1
	}

	return int32(min(sum, math.MaxInt32))
}
