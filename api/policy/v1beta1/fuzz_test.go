package v1beta1

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzBudgetAnnotations: operations are known ones and each occurs once, a total is a positive integer, and
// a selector that can be read is read again as the same after it was written.
func FuzzBudgetAnnotations(f *testing.F) {
	for _, text := range []string{"DELETE,UPDATE", " EVICT ,,EVICT", "delete", "5", "0", "-1", "+7", "2147483648", `{"matchLabels":{"a":"b"}}`,
		`{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}`, "null", `{"matchlabels":{}}`, "{}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if operations, err := ParseBudgetOperations(text); err == nil {
			var words []string
			for i, operation := range operations {
				if !slices.Contains(BudgetOperations, operation) || slices.Contains(operations[:i], operation) {
					t.Errorf("%q has the operations %q", text, operations)
				}
				words = append(words, string(operation))
			}
			if again, err := ParseBudgetOperations(strings.Join(words, ",")); err != nil || !slices.Equal(again,
				operations) {
				t.Errorf("%q has the operations %q, which are read again as %q, %v", text, operations, again, err)
			}
		}
		total, err := ParseBudgetTotalReplicas(text)
		if n, wrong := strconv.ParseInt(text, 10, 32); (wrong == nil && n > 0) != (err == nil) || err == nil &&
			int64(*total) != n {
			t.Errorf("%q is the total %v, %v", text, total, err)
		}
		if selector, err := ParseBudgetIgnoredPods(text); err == nil {
			encoded, err := json.Marshal(selector)
			if err != nil {
				t.Fatalf("writing the selector %q: %v", text, err)
			}
			again, err := ParseBudgetIgnoredPods(string(encoded))
			if err != nil || metav1.FormatLabelSelector(again) != metav1.FormatLabelSelector(selector) {
				t.Errorf("%q is read again from %s as %v, %v", text, encoded, again, err)
			}
		}
	})
}
