package uniteddeployment

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
)

// UD-022, UD-069, CS-021 (parts): the controller adds a label to the selector of a UnitedDeployment, for its CloneSets. One with the longest
// selector that is admitted can have children.
func TestChildrenOfTheLongestSelectorAreAdmitted(t *testing.T) {
	u := united(t, cloned4, `,"selector":{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"x","operator":"NotIn","values":["v"`+
		strings.Repeat(`,"v"`, 197)+`]}]},`+subsets(`{"name":"a"}`))
	if found := faults(u, nil); len(found) > 0 {
		t.Fatal(found)
	}
	template, err := TemplateOf(&u.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	document, err := template.Build(u, &u.Spec.Topology.Subsets[0], Wanted{Replicas: 1, Revision: "r"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	child := &appsv1beta1.CloneSet{}
	if err := json.Unmarshal(text, child); err != nil {
		t.Fatal(err)
	}
	for _, err := range cloneset.Validate(cloneset.WrittenInV1beta1(child), nil, inplace.Options{}) {
		if err.Type == field.ErrorTypeTooMany {
			t.Errorf("the CloneSet of its subset is refused: %v", err)
		}
	}
}
