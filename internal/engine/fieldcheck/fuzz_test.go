package fieldcheck

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/afloat-project/afloat/internal/fuzzing"
)

// selectorFrom makes a selector of few keys and values, so that two of them often meet.
func selectorFrom(c *fuzzing.Choices) *metav1.LabelSelector {
	keys, values := []string{"a", "b", "c"}, []string{"", "x", "y", "z"}
	s := &metav1.LabelSelector{}
	for range c.Next(3) {
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]string{}
		}
		s.MatchLabels[fuzzing.Pick(c, keys...)] = fuzzing.Pick(c, values...)
	}
	for range c.Next(4) {
		r := metav1.LabelSelectorRequirement{Key: fuzzing.Pick(c, keys...), Operator: fuzzing.Pick(c,
			metav1.LabelSelectorOpIn,
			metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			for range 1 + c.Next(3) {
				r.Values = append(r.Values, fuzzing.Pick(c, values...))
			}
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	return s
}

// FuzzSelectorsOverlap: two selectors overlap exactly if some labels match both, which is tried with all
// values that they name and one that they do not.
func FuzzSelectorsOverlap(f *testing.F) {
	f.Add([]byte("\x01\x00\x01\x02\x01\x00\x00\x01\x02\x01"))
	f.Add([]byte("two selectors of some keys and values"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := fuzzing.Choices(data)
		a, b := selectorFrom(&c), selectorFrom(&c)
		got, err := SelectorsOverlap(a, b)
		if err != nil {
			t.Fatalf("%v and %v: %v", a, b, err)
		}
		if other, err := SelectorsOverlap(b, a); err != nil || other != got {
			t.Errorf("%v and %v overlap: %t, and the other way round: %t, %v", a, b, got, other, err)
		}
		first, err := metav1.LabelSelectorAsSelector(a)
		if err != nil {
			t.Fatal(err)
		}
		second, err := metav1.LabelSelectorAsSelector(b)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		values := []string{"absent", "", "x", "y", "z", "other"}
		for i := range len(values) * len(values) * len(values) {
			set := labels.Set{}
			for n, key := range []string{"a", "b", "c"} {
				value := values[i/[]int{1, len(values), len(values) * len(values)}[n]%len(values)]
				if value != "absent" {
					set[key] = value
				}
			}
			found = found || first.Matches(set) && second.Matches(set)
		}
		if found != got {
			t.Errorf("%s and %s overlap: got %t, want %t", fuzzing.JSON(a), fuzzing.JSON(b), got, found)
		}
	})
}

// FuzzRequiredSelector: a selector without errors can be used and selects less than everything, and every
// error names a field below the path.
func FuzzRequiredSelector(f *testing.F) {
	f.Add([]byte("a selector with whatever is in these bytes"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := fuzzing.Fill[metav1.LabelSelector](data)
		errs := RequiredSelector(s, field.NewPath("spec", "selector"))
		for _, err := range errs {
			if len(err.Field) < len("spec.selector") || err.Field[:len("spec.selector")] != "spec.selector" {
				t.Errorf("%s has an error of field %q", fuzzing.JSON(s), err.Field)
			}
		}
		selector, err := metav1.LabelSelectorAsSelector(s)
		if len(errs) == 0 && (err != nil || selector.Empty()) {
			t.Errorf("%s has no errors, and is %v, %v", fuzzing.JSON(s), selector, err)
		}
	})
}
