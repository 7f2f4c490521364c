package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
)

func weights(terms ...pub.UpdatePriorityWeightTerm) *pub.UpdatePriorityStrategy {
	return &pub.UpdatePriorityStrategy{WeightPriority: terms}
}

func keys(keys ...string) *pub.UpdatePriorityStrategy {
	strategy := &pub.UpdatePriorityStrategy{}
	for _, key := range keys {
		strategy.OrderPriority = append(strategy.OrderPriority, pub.UpdatePriorityOrderTerm{OrderedKey: key})
	}
	return strategy
}

func TestPrioritize(t *testing.T) {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	// with is a pod named by its only label value.
	with := func(key string, values ...string) (candidates []Candidate) {
		for _, value := range values {
			candidates = append(candidates, candidate(value, labelled(key, value)))
		}
		return candidates
	}
	tests := map[string]struct {
		strategy   *pub.UpdatePriorityStrategy
		candidates []Candidate
		want       []string
	}{
		"none":  {nil, with("v", "b", "a"), []string{"b", "a"}},
		"empty": {&pub.UpdatePriorityStrategy{}, with("v", "b", "a"), []string{"b", "a"}},
		"CS-181 the higher weight first, the same weight as before": {
			weights(pub.UpdatePriorityWeightTerm{Weight: 20, MatchSelector: selecting("v", "low")},
				pub.UpdatePriorityWeightTerm{Weight: 50, MatchSelector: selecting("v", "high")}),
			with("v", "z", "low", "a", "high"), []string{"high", "low", "z", "a"}},
		"CS-181 weights of all matching terms add up": {
			weights(pub.UpdatePriorityWeightTerm{Weight: 60, MatchSelector: selecting("v", "one")},
				pub.UpdatePriorityWeightTerm{Weight: 40, MatchSelector: expression("v", metav1.LabelSelectorOpIn, "two", "three")},
				pub.UpdatePriorityWeightTerm{Weight: 30, MatchSelector: expression("v", metav1.LabelSelectorOpIn, "two")}),
			with("v", "three", "one", "two"), []string{"two", "one", "three"}},
		"CS-181 weight 0 is as none": {weights(pub.UpdatePriorityWeightTerm{Weight: 0, MatchSelector: selecting("v", "b")}),
			with("v", "a", "b"), []string{"a", "b"}},
		"CS-181 a selector for the absence of a label": {
			weights(pub.UpdatePriorityWeightTerm{Weight: 1, MatchSelector: expression("other", metav1.LabelSelectorOpExists)},
				pub.UpdatePriorityWeightTerm{Weight: 2, MatchSelector: expression("w", metav1.LabelSelectorOpDoesNotExist)}),
			append(with("w", "a"), with("v", "b")...), []string{"b", "a"}},
		"CS-181 unusable selectors match nothing": {
			weights(pub.UpdatePriorityWeightTerm{Weight: 100, MatchSelector: expression("v", "Near", "a")},
				pub.UpdatePriorityWeightTerm{Weight: 100, MatchSelector: expression("v", metav1.LabelSelectorOpIn)},
				pub.UpdatePriorityWeightTerm{Weight: 100, MatchSelector: expression("no key!", metav1.LabelSelectorOpNotIn, "x")},
				pub.UpdatePriorityWeightTerm{Weight: 1, MatchSelector: selecting("v", "b")}),
			with("v", "a", "b"), []string{"b", "a"}},
		"CS-182 the larger number at the end first": {
			keys("v"), with("v", "sts-2", "sts-10", "x9y", "3", "sts-1", "a-"), []string{"sts-10", "3", "sts-2", "sts-1", "x9y", "a-"}},
		"CS-182 no number is 0, leading zeros are none": {keys("v"), with("v", "x", "a-0", "b-00", "c-007", "d-6"),
			[]string{"c-007", "d-6", "x", "a-0", "b-00"}},
		"CS-182 what stands before the number does not matter, not even a minus": {keys("v"), with("v", "a-1", "-2", "1x3"),
			[]string{"1x3", "-2", "a-1"}},
		"CS-182 numbers beyond 64 bits": {
			keys("v"), with("v", "9223372036854775807", "18446744073709551617", "18446744073709551618", "5"),
			[]string{"18446744073709551618", "18446744073709551617", "9223372036854775807", "5"}},
		"CS-182 no key, then the first key, then the second, whatever the numbers": {
			keys("first", "second"), append(with("second", "s-99"), append(with("first", "f-1"), with("neither", "n-0", "m-5")...)...),
			[]string{"n-0", "m-5", "f-1", "s-99"}},
		"CS-182 the first key that the pod has counts": {
			keys("first", "second"), append(with("first", "f-5"), candidate("both", labelled("second", "99"), labelled("first", "6"))),
			[]string{"both", "f-5"}},
		"CS-182 an empty value is a value": {keys("v"), append([]Candidate{candidate("empty", labelled("v", ""))}, candidate("none")),
			[]string{"none", "empty"}},
		"CS-183 weight alone applies, should both get past admission": {
			&pub.UpdatePriorityStrategy{OrderPriority: keys("v").OrderPriority,
				WeightPriority: weights(pub.UpdatePriorityWeightTerm{Weight: 1, MatchSelector: selecting("v", "1")}).WeightPriority},
			with("v", "2", "3", "1"), []string{"1", "2", "3"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			Prioritize(tt.candidates, tt.strategy)
			if diff := cmp.Diff(tt.want, names(tt.candidates)); diff != "" {
				t.Errorf("order by priority (-want +got):\n%s", diff)
			}
		})
	}
}
