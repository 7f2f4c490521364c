// Package selectors compares label selectors.
package selectors

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Overlap reports whether some object could match both selectors; nil selects everything (SS-060 to SS-062).
// Keys are judged one by one, and each has as many values as one likes, so that two selectors are disjoint
// exactly if a key cannot satisfy what both ask of it. An error says which selector cannot be read.
func Overlap(a, b *metav1.LabelSelector) (bool, error) {
	asked := map[string]*demand{}
	for _, selector := range []*metav1.LabelSelector{a, b} {
		if selector == nil {
			continue
		}
		for key, value := range selector.MatchLabels {
			of(asked, key).in(value)
		}
		for i := range selector.MatchExpressions {
			expression := &selector.MatchExpressions[i]
			d := of(asked, expression.Key)
			switch expression.Operator {
			case metav1.LabelSelectorOpIn:
				d.in(expression.Values...)
			case metav1.LabelSelectorOpNotIn:
				d.out.Insert(expression.Values...)
			case metav1.LabelSelectorOpExists:
				d.present = true
			case metav1.LabelSelectorOpDoesNotExist:
				d.absent = true
			default:
				return true, fmt.Errorf("%q is no operator of label selectors", expression.Operator)
			}
		}
	}
	for _, d := range asked {
		if !d.possible() {
			return false, nil
		}
	}
	return true, nil
}

// demand is what is asked of the values of one key.
type demand struct {
	present, absent bool
	// among, if not nil, holds the values that will do; out those that will not.
	among, out sets.Set[string]
}

func of(asked map[string]*demand, key string) *demand {
	if asked[key] == nil {
		asked[key] = &demand{out: sets.New[string]()}
	}
	return asked[key]
}

func (d *demand) in(values ...string) {
	allowed := sets.New(values...)
	if d.among != nil {
		allowed = d.among.Intersection(allowed)
	}
	d.among, d.present = allowed, true
}

func (d *demand) possible() bool {
	if d.present && d.absent {
		return false
	}
	return d.among == nil || d.among.Difference(d.out).Len() > 0
}

// MostTerms is how many labels and values a selector may have that is read at each event of a pod: all
// others' events wait for that.
const MostTerms = 200

// Terms is the number of labels and values in a selector.
func Terms(selector *metav1.LabelSelector) int {
	n := len(selector.MatchLabels)
	for i := range selector.MatchExpressions {
		n += 1 + len(selector.MatchExpressions[i].Values)
	}
	return n
}
