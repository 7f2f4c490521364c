package cloneset

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// CS-020 to CS-035 (part): what is just allowed, and what is just not.
func TestValidateAtItsBounds(t *testing.T) {
	priority := func(text string) string { return `{"updateStrategy":{"priorityStrategy":{` + text + `}}}` }
	weight := func(weight, selector string) string {
		return priority(`"weightPriority":[{"weight":` + weight + `,"matchSelector":` + selector + `}]`)
	}
	claim := func(length int) string {
		return `{"volumeClaimTemplates":[{"metadata":{"name":"` + strings.Repeat("d", length) + `"}}]}`
	}
	const a = `{"matchLabels":{"a":"b"}}`
	const weights, claims = "spec.updateStrategy.priorityStrategy.weightPriority[0].weight", "spec.volumeClaimTemplates[0].metadata.name"
	image := func(text string) string {
		return `{"template":{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a"` + text + `}]}}}`
	}
	for name, tt := range map[string]struct {
		members string
		want    []string
	}{
		"the longest name": {`{"metadata":{"name":"` + strings.Repeat("a", maxNameLength) + `"}}`, nil},
		"one character more": {`{"metadata":{"name":"` + strings.Repeat("a", maxNameLength+1) + `"}}`,
			[]string{"Invalid metadata.name"}},
		"a deadline of no time":            {`{"progressDeadlineSeconds":0}`, []string{"Invalid spec.progressDeadlineSeconds"}},
		"a negative deadline":              {`{"progressDeadlineSeconds":-1}`, []string{"Invalid spec.progressDeadlineSeconds"}},
		"labels and expressions":           {`{"selector":{"matchLabels":{"app":"shop"},"matchExpressions":[{"key":"app","operator":"Exists"}]}}`, nil},
		"an image":                         {image(`,"image":"i:1"`), nil},
		"none, which is not ours to judge": {image(``), nil},
		"one that is no reference":         {image(`,"image":"I I"`), []string{"Invalid spec.template.spec.containers[0].image"}},
		"the longest claim":                {claim(maxNameLength - len("-shop")), nil},
		"a longer one":                     {claim(maxNameLength - len("-shop") + 1), []string{"Invalid " + claims}},
		"no weight":                        {weight("0", a), nil},
		"the largest weight":               {weight("100", a), nil},
		"a negative weight":                {weight("-1", a), []string{"Invalid " + weights}},
		"a weight that is too large":       {weight("101", a), []string{"Invalid " + weights}},
		"by labels and expressions": {weight("1", `{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"Exists"}]}`),
			nil},
		"an order alone": {priority(`"orderPriority":[{"orderedKey":"a"}]`), nil},
		"scale down":     {`{"updateStrategy":{"inPlaceUpdateStrategy":{"imagePreDownloadParallelism":0}}}`, nil},
		"less than none": {`{"updateStrategy":{"inPlaceUpdateStrategy":{"imagePreDownloadParallelism":-1}}}`,
			[]string{"Invalid spec.updateStrategy.inPlaceUpdateStrategy.imagePreDownloadParallelism"}},
	} {
		if diff := cmp.Diff(append([]string{}, tt.want...), summary(Validate(written(t, "v1alpha1", tt.members), nil,
			inplace.Options{}))); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
	errs := Validate(written(t, "v1alpha1", claim(maxNameLength)), nil, inplace.Options{})
	if want := "must be no more than 242 characters"; len(errs) != 1 {
		t.Errorf("number of errors: got %d, want 1; %v, want %s", len(errs), errs, want)
	} else if !strings.Contains(errs[0].Detail, want) {
		t.Errorf("detail of the first error: got %q, want it to contain %q; %v, want %s", errs[0].Detail, want,
			errs, want)
	}
}
