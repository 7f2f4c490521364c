package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// SubsetPatch is the patch of a subset, and its path.
type SubsetPatch struct {
	At  string
	Raw []byte
}

// mostJudged is the maximum number of different patches of one object that the API server is asked about.
const mostJudged = 1000

// ValidatePatches has the API server validate the template of a workload with each patch applied. Of too many
// different patches it warns.
func ValidatePatches(
	ctx context.Context, judge TemplateValidator, namespace string, workload Document, patches []SubsetPatch,
) (causes []metav1.StatusCause, warnings []string) {
	var known map[string]bool
	judged := map[string][]metav1.StatusCause{} // by the text of the patch
	for _, patch := range patches {
		if len(patch.Raw) == 0 {
			continue
		}
		found, before := judged[string(patch.Raw)]
		if !before {
			if len(judged) == mostJudged {
				return causes, append(warnings, fmt.Sprintf(
					"%s and all after it are not validated: there are more than %d different patches", patch.At, mostJudged))
			}
			template, err := workloadspread.Patched(workload, patch.Raw)
			if err != nil {
				causes = append(causes, metav1.StatusCause{
					Type:    metav1.CauseTypeFieldValueInvalid,
					Field:   patch.At,
					Message: err.Error(),
				})
				continue
			}
			if found, err = ValidateDocument(ctx, judge, namespace, template); err != nil {
				return causes, append(warnings, patch.At+" could not be validated: "+err.Error())
			}
			judged[string(patch.Raw)] = found
		}
		if len(found) > 0 && known == nil {
			known = wrongAnyway(ctx, judge, namespace, workload)
		}
		for _, cause := range found {
			if rest := strings.TrimPrefix(cause.Field, "spec.template"); !known[cause.Field+cause.Message] {
				cause.Field = patch.At + rest
				causes = append(causes, cause)
			}
		}
	}
	return causes, warnings
}

// wrongAnyway returns the faults that the workload's template has without a patch, which do not count.
func wrongAnyway(
	ctx context.Context, judge TemplateValidator, namespace string, workload Document,
) map[string]bool {
	known := map[string]bool{}
	template, err := workloadspread.Patched(workload, nil)
	if err != nil {
		return known
	}
	causes, _ := ValidateDocument(ctx, judge, namespace, template) // without an answer, all faults count
	for _, cause := range causes {
		known[cause.Field+cause.Message] = true
	}
	return known
}

// ValidateDocument has the API server validate a pod template of any form.
func ValidateDocument(
	ctx context.Context, judge TemplateValidator, namespace string, template Document,
) ([]metav1.StatusCause, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encoding the template: %w", err)
	}
	if template, err = DecodeDocument(text); err != nil {
		return nil, fmt.Errorf("reading the template: %w", err)
	}
	return judge.Judge(ctx, namespace, template, nil)
}
