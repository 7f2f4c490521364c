package reconcile

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/cputime"
)

func stored(uid string, generation int64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Generation: generation}}
}

func without(values int) *metav1.LabelSelector {
	forbidden := make([]string, values)
	for i := range forbidden {
		forbidden[i] = fmt.Sprint("v", i)
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: forbidden}}}
}

// A selector is that of the generation and of the field, and an error is told each time.
func TestSelectorsAreThoseOfTheGeneration(t *testing.T) {
	var s Selectors
	a := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1"}}
	b := &metav1.LabelSelector{MatchLabels: map[string]string{"b": "1"}}
	wrong := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "no value!"}}
	for range 2 {
		for _, c := range []struct {
			object   *corev1.Pod
			field    string
			selector *metav1.LabelSelector
			want     string
		}{
			{stored("x", 1), "f", a, "a=1"}, {stored("x", 2), "f", b, "b=1"}, {stored("x", 1), "g", b, "b=1"},
			{stored("y", 1), "f", b, "b=1"}, {stored("x", 0), "f", a, "a=1"}, {stored("x", 0), "f", b, "b=1"},
			{stored("", 1), "f", a, "a=1"}, {stored("", 1), "f", b, "b=1"},
			{stored("z", 1), "f", nil, labels.Nothing().String()}, {stored("z", 1), "f", &metav1.LabelSelector{}, ""},
		} {
			got, err := s.Of(c.object, c.field, c.selector)
			if err != nil || got.String() != c.want {
				t.Errorf("%s of %q, generation %d: got %v and error %v, want %s", c.field, c.object.UID,
					c.object.Generation, got, err, c.want)
			}
		}
		if _, err := s.Of(stored("w", 1), "f", wrong); err == nil {
			t.Error("a selector that cannot be parsed: got no error")
		}
	}
}

// An event costs next to nothing, however long the selector is.
func TestSelectorsAreParsedOnce(t *testing.T) {
	var s Selectors
	object, selector := stored("x", 1), without(20_000)
	if _, err := s.Of(object, "f", selector); err != nil {
		t.Fatal(err)
	}
	spent := cputime.Start(t)
	for range 100 {
		if got, err := s.Of(object, "f", selector); err != nil || !got.Matches(labels.Set{"a": "w"}) {
			t.Fatalf("got %v and error %v, want a selector that matches", got, err)
		}
	}
	if took := spent(); took > 100*time.Millisecond {
		t.Errorf("100 looks at a selector take %s, want next to nothing", took)
	}
}

// Selectors of objects that are gone do not stay for ever.
func TestSelectorsAreBounded(t *testing.T) {
	var s Selectors
	selector := without(20_000)
	for i := range 30 {
		if _, err := s.Of(stored(fmt.Sprint(i), 1), "f", selector); err != nil {
			t.Fatal(err)
		}
	}
	sum := 0
	for _, one := range s.kept {
		sum += one.size
	}
	if sum != s.size || sum > mostSelectorsKept || sum < mostSelectorsKept/2 {
		t.Errorf("kept are %d, counted as %d: want the same, and nearly %d", sum, s.size, mostSelectorsKept)
	}
}
