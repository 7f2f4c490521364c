package statefulset

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// Slots are the ordinals that a set wants pods for: the first so many integers from a start that are not
// reserved (ASTS-091). Ranges are never spread out, so that nothing here takes time or memory that grows with
// the length of a range (ASTS-033), nor with the number of slots, but for walking over them. The position of
// a slot among all of them, from 0, is its rank.
type Slots struct {
	start int64
	count int
	// reserved are the ranges that are left out: from start on, ascending, with at least one free ordinal
	// between two of them.
	reserved []reservedRange
}

// reservedRange is a range of ordinals without a slot.
type reservedRange struct {
	first, last int64
	// before is how many ordinals from the start on are reserved before this range.
	before int64
}

// SlotsOf returns the slots of a set. The gate StatefulSetStartOrdinal says whether the start is other than 0
// at all (ASTS-090). It fails if the reserved ordinals cannot be read; nothing is known then (ASTS-095).
func SlotsOf(spec *appsv1beta1.StatefulSetSpec, startOrdinal bool) (Slots, error) {
	slots, errs := slotsOf(spec, startOrdinal, field.NewPath("spec", "reserveOrdinals"))
	return slots, errs.ToAggregate()
}

func slotsOf(
	spec *appsv1beta1.StatefulSetSpec, startOrdinal bool, path *field.Path,
) (Slots, field.ErrorList) {
	ranges, errs := parseReserved(spec.ReserveOrdinals, path)
	if len(errs) > 0 {
		return Slots{}, errs
	}

	slots, replicas := Slots{}, int64(1)
	if spec.Replicas != nil {
		replicas = max(int64(*spec.Replicas), 0)
	}
	if startOrdinal && spec.Ordinals != nil {
		slots.start = max(int64(spec.Ordinals.Start), 0)
	}
	slots.reserved = merged(ranges, slots.start)
	free := math.MaxInt32 + 1 - slots.start
	for _, r := range slots.reserved {
		free -= r.last - r.first + 1
	}

	slots.count = int(min(replicas, free))
	return slots, nil
}

// merged sorts the ranges, joins those that touch, and leaves out what is below the start.
func merged(ranges []reservedRange, start int64) []reservedRange {
	slices.SortFunc(ranges, func(a, b reservedRange) int { return cmp.Compare(a.first, b.first) })
	kept := ranges[:0]
	before := int64(0)
	for _, r := range ranges {
		r.first = max(r.first, start)
		if r.last < r.first {
			continue
		}
		if last := len(kept) - 1; last >= 0 && r.first <= kept[last].last+1 {
			before += max(r.last-kept[last].last, 0)
			kept[last].last = max(kept[last].last, r.last)
			continue
		}
		r.before = before
		before += r.last - r.first + 1
		kept = append(kept, r)
	}

	return kept
}

// parseReserved reads reserved ordinals: integers, and ranges of the form <digits>-<digits>. Each error has
// the index of its entry.
func parseReserved(
	list []intstr.IntOrString, path *field.Path,
) (ranges []reservedRange, errs field.ErrorList) {
	ranges = make([]reservedRange, 0, len(list))
	for i, entry := range list {
		if entry.Type == intstr.Int {
			if entry.IntVal < 0 {
				errs = append(errs,
					field.Invalid(path.Index(i), entry.IntVal, "must be greater than or equal to 0"))
			}
			ranges = append(ranges, reservedRange{first: int64(entry.IntVal), last: int64(entry.IntVal)})
			continue
		}
		from, to, isRange := strings.Cut(entry.StrVal, "-")
		if !isRange || !digits(from) || !digits(to) {
			errs = append(errs, field.Invalid(path.Index(i), entry.StrVal,
				`must be an integer, or a text such as "3-5"`))
			continue
		}
		first, firstErr := strconv.ParseInt(from, 10, 32)
		last, lastErr := strconv.ParseInt(to, 10, 32)
		switch {
		case firstErr != nil || lastErr != nil:
			errs = append(errs, field.Invalid(path.Index(i), entry.StrVal,
				"must not be above "+strconv.Itoa(math.MaxInt32)))
		case first > last:
			errs = append(errs, field.Invalid(path.Index(i), entry.StrVal, "must not end before it begins"))
		}
		ranges = append(ranges, reservedRange{first: first, last: last})
	}

	return ranges, errs
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// Len is the number of slots: replicas, but no more than there are free ordinals.
func (s Slots) Len() int { return s.count }

// Nth returns the slot of the rank; ok is false if there is none.
func (s Slots) Nth(rank int) (ordinal int32, ok bool) {
	if rank < 0 || rank >= s.count {
		return 0, false
	}
	at := s.start + int64(rank)
	// The ranges before the slot are those before which no more ordinals are free than the rank.
	n := sort.Search(len(s.reserved),
		func(i int) bool { return s.reserved[i].first-s.reserved[i].before > at })
	if n > 0 {
		r := s.reserved[n-1]
		at += r.before + r.last - r.first + 1
	}
	return int32(at), true //nolint:gosec // count leaves room
}

// Rank returns the rank of a slot; ok is false if the ordinal is no slot, so that its pod is condemned
// (ASTS-094).
func (s Slots) Rank(ordinal int32) (rank int, ok bool) {
	at := int64(ordinal)
	if at < s.start {
		return 0, false
	}

	n := sort.Search(len(s.reserved), func(i int) bool { return s.reserved[i].first > at })
	free := at - s.start
	if n > 0 {
		r := s.reserved[n-1]
		if at <= r.last {
			return 0, false
		}
		free -= r.before + r.last - r.first + 1
	}

	return int(free), free < int64(s.count)
}

// Has tells whether the ordinal is a slot.
func (s Slots) Has(ordinal int32) bool {
	_, ok := s.Rank(ordinal)
	return ok
}

// All walks over the slots in ascending order.
func (s Slots) All() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for rank := range s.count {
			if ordinal, _ := s.Nth(rank); !yield(ordinal) {
				return
			}
		}
	}
}

// Backward walks over the slots in descending order.
func (s Slots) Backward() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for rank := s.count - 1; rank >= 0; rank-- {
			if ordinal, _ := s.Nth(rank); !yield(ordinal) {
				return
			}
		}
	}
}
