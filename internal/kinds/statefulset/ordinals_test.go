package statefulset

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// wanting is a spec with these ordinals; reserved has numbers and texts.
func wanting(replicas, start int32, reserved ...any) *appsv1beta1.StatefulSetSpec {
	spec := &appsv1beta1.StatefulSetSpec{}
	spec.Replicas, spec.Ordinals = &replicas, &appsv1beta1.StatefulSetOrdinals{Start: start}
	for _, entry := range reserved {
		if text, ok := entry.(string); ok {
			spec.ReserveOrdinals = append(spec.ReserveOrdinals, intstr.FromString(text))
		} else {
			spec.ReserveOrdinals = append(spec.ReserveOrdinals, intstr.FromInt(entry.(int)))
		}
	}
	return spec
}

// slots are those with the gate on.
func slots(t *testing.T, spec *appsv1beta1.StatefulSetSpec) Slots {
	t.Helper()
	s, err := SlotsOf(spec, true)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ASTS-090, ASTS-091: the examples of the specification, and what the gate and absent fields mean.
func TestSlots(t *testing.T) {
	for want, s := range map[string]Slots{
		"[0 2 3 4]":     slots(t, wanting(4, 0, 1)),
		"[2 3 5]":       slots(t, wanting(3, 2, 0, 4)),
		"[2 5 6 7]":     slots(t, wanting(4, 1, 1, 3, 4)),
		"[0 2 3 6 7 8]": slots(t, wanting(6, 0, 1, "4-5")),
		"[]":            slots(t, wanting(0, 0, "0-3")),
		"[0]":           slots(t, &appsv1beta1.StatefulSetSpec{}),
	} {
		if got := fmt.Sprint(append([]int32{}, slices.Collect(s.All())...)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	off, err := SlotsOf(wanting(3, 5, 1), false)
	if got := slices.Collect(off.All()); err != nil {
		t.Errorf("without the gate: unexpected error: %v\n%v", err, got)
	} else if !slices.Equal(got, []int32{0, 2, 3}) {
		t.Errorf("without the gate: all: got %v, want %v\n%v", got, []int32{0, 2, 3}, err)
	}
}

// ASTS-091, ASTS-092 (part), ASTS-094 (part): slots are those of a model that looks at each ordinal by
// itself, whatever is reserved, in whatever order, overlapping, below the start or above the last slot.
func TestSlotsAreThoseOfTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start, replicas := int32(rapid.IntRange(0, 12).Draw(t, "start")), int32(rapid.IntRange(0, 20).Draw(t, "replicas"))
		reserved := map[int32]bool{}
		var list []any
		for range rapid.IntRange(0, 8).Draw(t, "entries") {
			first := rapid.IntRange(0, 40).Draw(t, "first")
			last := first + rapid.IntRange(0, 6).Draw(t, "length")
			if first == last && rapid.Bool().Draw(t, "number") {
				list = append(list, first)
			} else {
				list = append(list, fmt.Sprintf("%d-%d", first, last))
			}
			for o := first; o <= last; o++ {
				reserved[int32(o)] = true
			}
		}
		spec := wanting(replicas, start, list...)
		before := spec.DeepCopy()
		s, err := SlotsOf(spec, true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, spec); diff != "" {
			t.Fatalf("the spec was changed (-before +after):\n%s", diff)
		}
		var want []int32
		for o := start; len(want) < int(replicas); o++ {
			if !reserved[o] {
				want = append(want, o)
			}
		}
		if got := slices.Collect(s.All()); !slices.Equal(got, want) {
			t.Fatalf("ordinals: got %v, want %v", got, want)
		}
		if s.Len() != len(want) {
			t.Fatalf("number of ordinals: got %d, want %d", s.Len(), len(want))
		}
		down := slices.Collect(s.Backward())
		slices.Reverse(down)
		if !slices.Equal(down, want) {
			t.Fatalf("downwards %v, want %v", down, want)
		}
		for o := int32(0); o < 90; o++ {
			rank := slices.Index(want, o)
			got, ok := s.Rank(o)
			if ok != (rank >= 0) {
				t.Fatalf("ordinal %d has a rank: got %t, want %t", o, ok, !ok)
			}
			if s.Has(o) != ok {
				t.Fatalf("ordinal %d is one of the set: got %t, want %t", o, !ok, ok)
			}
			if ok && got != rank {
				t.Fatalf("ordinal %d: rank %d, want %d", o, got, rank)
			}
		}
	})
}

// ASTS-033: ranges are intervals, however long they are.
func TestLongRangesCostNothing(t *testing.T) {
	s := slots(t, wanting(3, 0, "1-2000000000", "5-1999999999", 2000000001))
	if got := slices.Collect(s.All()); !slices.Equal(got, []int32{0, 2000000002, 2000000003}) {
		t.Errorf("all: got %v, want %v", got, []int32{0, 2000000002, 2000000003})
	}
	spec := wanting(2, 0, "0-2000000000")
	if allocated := testing.AllocsPerRun(10, func() { _, _ = SlotsOf(spec, true) }); allocated > 20 {
		t.Errorf("%v allocations", allocated)
	}
	many := slots(t, wanting(math.MaxInt32, 7, 9))
	if got, ok := many.Nth(2_000_000_000); !ok {
		t.Errorf("ok: got false, want true\n%d", got)
	} else if got != 2_000_000_008 {
		t.Errorf("the ordinal of that number: got %d, want 2_000_000_008\n%v", got, ok)
	}
}

// There are no ordinals above 2147483647, so that a set may have fewer slots than it wants.
func TestThereAreNoSlotsAboveTheLastOrdinal(t *testing.T) {
	for _, spec := range []*appsv1beta1.StatefulSetSpec{wanting(5, math.MaxInt32-1), wanting(5, 0, "0-2147483645"), wanting(2, 2147483646,
		3)} {
		s := slots(t, spec)
		if got := slices.Collect(s.All()); !slices.Equal(got, []int32{math.MaxInt32 - 1, math.MaxInt32}) {
			t.Errorf("all: got %v, want %v", got, []int32{math.MaxInt32 - 1, math.MaxInt32})
		}
		if _, ok := s.Nth(2); ok {
			t.Errorf("ok: got true, want false; %d slots", s.Len())
		} else if s.Len() != 2 {
			t.Errorf("number of ordinals: got %d, want 2", s.Len())
		}
	}
	s := slots(t, wanting(5, 0, "0-2147483647"))
	if s.Len() != 0 {
		t.Errorf("number of ordinals: got %d, want 0", s.Len())
	}
	if s.Has(7) {
		t.Error("7 is one of the ordinals: got true, want false")
	}
	if s := slots(t, wanting(-5, -5)); s.Len() != 0 { // as only somebody without webhooks can write it
		t.Errorf("%d slots", s.Len())
	}
}

// ASTS-032, ASTS-033, ASTS-095 (part): what cannot be read is an error with its index, and no slots are
// known.
func TestReservedOrdinalsThatCannotBeRead(t *testing.T) {
	for _, bad := range []any{-1, "5", "a-b", "1-2-3", "5-2", "", "-", "1-", "-1", " 1-2", "1-+2", "0x1-2", "1-2147483648",
		"99999999999999999999-1"} {
		_, err := SlotsOf(wanting(3, 0, 1, "2-3", bad), true)
		if err == nil {
			t.Errorf("%v: error: got nil, want an error", bad)
		} else if !strings.Contains(err.Error(), "spec.reserveOrdinals[2]") {
			t.Errorf("%v: error: got %q, want it to contain %q", bad, err.Error(), "spec.reserveOrdinals[2]")
		}
	}
	if s := slots(t, wanting(1, 0, "0-0", "01-002", "2147483647-2147483647")); !s.Has(3) {
		t.Error("good ranges")
	}
}
