package v1beta1

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// BudgetOperations are all operations that a budget may protect from.
var BudgetOperations = []PodUnavailableBudgetOperation{Delete, Update, Evict, Resize}

// ParseBudgetOperations reads annotation kruise.io/pub-protect-operations: operations separated by commas. Each is returned once (PUB-012).
func ParseBudgetOperations(text string) ([]PodUnavailableBudgetOperation, error) {
	var operations []PodUnavailableBudgetOperation
	for word := range strings.SplitSeq(text, ",") {
		operation := PodUnavailableBudgetOperation(strings.TrimSpace(word))
		switch {
		case operation == "" || slices.Contains(operations, operation):
		case !slices.Contains(BudgetOperations, operation):
			return nil, fmt.Errorf("%q is no operation: there are %q", operation, BudgetOperations)
		default:
			operations = append(operations, operation)
		}
	}
	return operations, nil
}

// ParseBudgetTotalReplicas reads annotation pub.kruise.io/protect-total-replicas (PUB-013).
func ParseBudgetTotalReplicas(text string) (*int32, error) {
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil || number < 1 {
		return nil, errors.New("must be an integer from 1 to 2147483647")
	}
	total := int32(number)
	return &total, nil
}

// ParseBudgetIgnoredPods reads annotation pub.kruise.io/ignored-pod-selector: a label selector as JSON (PUB-122).
func ParseBudgetIgnoredPods(text string) (*metav1.LabelSelector, error) {
	var selector *metav1.LabelSelector
	unknown, err := kjson.UnmarshalStrict([]byte(text), &selector)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return nil, fmt.Errorf("must be a label selector as JSON: %w", err)
	}
	if selector == nil {
		return nil, errors.New("must be a label selector as JSON, not null")
	}
	return selector, nil
}
