package fieldcheck

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

func selector(t *testing.T, text string) *metav1.LabelSelector {
	t.Helper()
	s := &metav1.LabelSelector{}
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// SS-061, SS-062, SS-D10.
func TestOverlap(t *testing.T) {
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"equal":                          {`{matchLabels: {a: b}}`, `{matchLabels: {a: b}}`, true},
		"different values":               {`{matchLabels: {a: b}}`, `{matchLabels: {a: c}}`, false},
		"different keys":                 {`{matchLabels: {a: b}}`, `{matchLabels: {c: d}}`, true},
		"Exists on another key (SS-062)": {`{matchLabels: {a: b}}`, `{matchExpressions: [{key: c, operator: Exists}]}`, true},
		"NotIn and Exists of a key (SS-062)": {`{matchExpressions: [{key: a, operator: NotIn, values: [x]}]}`,
			`{matchExpressions: [{key: a, operator: Exists}]}`, true},
		"In within NotIn": {`{matchExpressions: [{key: a, operator: In, values: [x, y]}]}`,
			`{matchExpressions: [{key: a, operator: NotIn, values: [x, y, z]}]}`, false},
		"In partly in NotIn": {`{matchExpressions: [{key: a, operator: In, values: [x, y]}]}`,
			`{matchExpressions: [{key: a, operator: NotIn, values: [x]}]}`, true},
		"In and DoesNotExist": {`{matchLabels: {a: b}}`, `{matchExpressions: [{key: a, operator: DoesNotExist}]}`, false},
		"Exists and DoesNotExist": {`{matchExpressions: [{key: a, operator: Exists}]}`,
			`{matchExpressions: [{key: a, operator: DoesNotExist}]}`, false},
		"NotIn and DoesNotExist": {`{matchExpressions: [{key: a, operator: NotIn, values: [x]}]}`,
			`{matchExpressions: [{key: a, operator: DoesNotExist}]}`, true},
		"DoesNotExist on another key": {`{matchLabels: {a: b}}`, `{matchExpressions: [{key: c, operator: DoesNotExist}]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := selector(t, test.a), selector(t, test.b)
			for _, pair := range [][2]*metav1.LabelSelector{{a, b}, {b, a}} {
				if got, err := SelectorsOverlap(pair[0], pair[1]); err != nil {
					t.Errorf("comparing %v with %v: %v", pair[0], pair[1], err)
				} else if got != test.want {
					t.Errorf("overlap of %v with %v: got %t, want %t", pair[0], pair[1], got, test.want)
				}
			}
			for _, one := range []*metav1.LabelSelector{a, b} {
				if got, err := SelectorsOverlap(one, nil); err != nil {
					t.Errorf("comparing %v with all: %v", one, err)
				} else if !got {
					t.Errorf("overlap of %v with all: got none", one)
				}
			}
		})
	}
	if _, err := SelectorsOverlap(selector(t, `{matchExpressions: [{key: a, operator: Near}]}`), nil); err == nil {
		t.Error("an unknown operator is none")
	}
}

// SS-060 to SS-062: the same as trying all labels of a small world in which each key has a value more than
// the selectors name.
func TestOverlapIsExact(t *testing.T) {
	keys, named, values := []string{"a", "b"}, []string{"x", "y"}, []string{"x", "y", "z"}
	requirement := rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{Key: rapid.SampledFrom(keys).Draw(t, "key"),
			Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{
				metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}).Draw(t, "operator")}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom(named), 1, 2, rapid.ID[string]).Draw(t, "values")
		}
		return r
	})
	any := rapid.Custom(func(t *rapid.T) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: rapid.MapOfN(rapid.SampledFrom(keys), rapid.SampledFrom(named), 0, 1).Draw(t, "labels"),
			MatchExpressions: rapid.SliceOfN(requirement, 0, 3).Draw(t, "expressions")}
	})
	var worlds []labels.Set
	for _, a := range append([]string{""}, values...) {
		for _, b := range append([]string{""}, values...) {
			world := labels.Set{}
			if a != "" {
				world["a"] = a
			}
			if b != "" {
				world["b"] = b
			}
			worlds = append(worlds, world)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		one, two := any.Draw(t, "one"), any.Draw(t, "two")
		first, err := metav1.LabelSelectorAsSelector(one)
		if err != nil {
			t.Fatal(err)
		}
		second, err := metav1.LabelSelectorAsSelector(two)
		if err != nil {
			t.Fatal(err)
		}
		want := false
		for _, world := range worlds {
			want = want || first.Matches(world) && second.Matches(world)
		}
		if got, err := SelectorsOverlap(one, two); err != nil {
			t.Fatalf("comparing %v with %v: %v", one, two, err)
		} else if got != want {
			t.Fatalf("overlap of %v with %v: got %t, want %t", one, two, got, want)
		}
	})
}
