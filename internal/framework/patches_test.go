package framework

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// countingJudge counts the dry runs that it is asked for.
type countingJudge struct {
	TemplateValidator
	asked int
}

// Judge implements TemplateValidator.
func (j *countingJudge) Judge(context.Context, string, Document, []string) ([]metav1.StatusCause, error) {
	j.asked++
	return nil, nil
}

// WS-046 (part): somebody writes an object of 5,000 subsets, each with another patch. One request does not become
// thousands of requests of the manager to the API server, and the user is told what was left out.
func TestOneRequestDoesNotBecomeThousands(t *testing.T) {
	var patches []SubsetPatch
	for i := range 5000 {
		patches = append(patches, SubsetPatch{At: fmt.Sprintf("spec.subsets[%d].patch", i),
			Raw: []byte(fmt.Sprintf(`{"metadata":{"labels":{"a":"%d"}}}`, i))})
	}
	workload := Document{"spec": Document{"template": Document{"metadata": Document{},
		"spec": Document{"containers": []any{Document{"name": "c"}}}}}}
	judge := &countingJudge{}
	causes, warnings := ValidatePatches(t.Context(), judge, "shop", workload, patches)
	if judge.asked != mostJudged || len(causes) > 0 || len(warnings) != 1 {
		t.Errorf("%d patches: got %d dry runs, faults %v and warnings %v, want %d dry runs and a warning", len(patches), judge.asked,
			causes, warnings, mostJudged)
	}
}
