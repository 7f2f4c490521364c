package fieldcheck

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// SelectorsOverlap reports whether some object could match both selectors; nil selects everything (SS-060 to SS-062).
// Keys are independent of each other and may have any value, so two selectors are disjoint exactly if some
// key cannot satisfy both of them. It returns an error if a selector is invalid.
func SelectorsOverlap(a, b *metav1.LabelSelector) (bool, error) {
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

// demand is what both selectors require of the value of one key.
type demand struct {
	present, absent bool
	// among, if not nil, contains the allowed values; out contains the forbidden ones.
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

// MostSelectorTerms is the maximum number of labels and values in a selector that is evaluated at each event of a
// pod, because the events of all other objects wait for that.
const MostSelectorTerms = 200

// SelectorTerms returns the number of labels and values in a selector.
func SelectorTerms(selector *metav1.LabelSelector) int {
	n := len(selector.MatchLabels)
	for i := range selector.MatchExpressions {
		n += 1 + len(selector.MatchExpressions[i].Values)
	}
	return n
}

// RequiredSelector rejects a selector of pods that is missing, would select all pods of the namespace, cannot
// be parsed, or is expensive to evaluate at each event of a pod.
func RequiredSelector(selector *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if selector == nil || SelectorTerms(selector) == 0 {
		return field.ErrorList{field.Required(path, "an empty selector would select all pods of the namespace")}
	}
	errs := metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)
	if n := SelectorTerms(selector); n > MostSelectorTerms {
		errs = append(errs, field.TooMany(path, n, MostSelectorTerms))
	}
	return errs
}

// NodeRequirements rejects a pod template whose requirements of its node are expensive to evaluate at each event of a
// node: more than [MostSelectorTerms], the labels of the nodeSelector included. Values are not counted.
func NodeRequirements(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	n := len(spec.NodeSelector)
	if affinity := spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		if required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			for i := range required.NodeSelectorTerms {
				term := &required.NodeSelectorTerms[i]
				n += max(len(term.MatchExpressions)+len(term.MatchFields), 1)
			}
		}
	}
	if n <= MostSelectorTerms {
		return nil
	}
	if len(spec.NodeSelector) > MostSelectorTerms {
		return field.ErrorList{field.TooMany(path.Child("nodeSelector"), n, MostSelectorTerms)}
	}
	return field.ErrorList{field.TooMany(path.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
		n, MostSelectorTerms)}
}
