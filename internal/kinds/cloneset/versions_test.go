package cloneset

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// TestBothVersionsPlanTheSame: the same template written in either version gives the same revision (IPU-200),
// and the grace period moves with the conversion (IPU-201).
func TestBothVersionsPlanTheSame(t *testing.T) {
	const template = `"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"future":1,"containers":[{"name":"nginx","image":"nginx:1"}]}}`
	alpha, beta := &appsv1alpha1.CloneSet{}, &appsv1beta1.CloneSet{}
	for document, into := range map[string]any{
		`{"metadata":{"name":"web"},"spec":{` + template +
			`,"updateStrategy":{"type":"InPlaceIfPossible","inPlaceUpdateStrategy":{"gracePeriodSeconds":9}}}}`: alpha,
		`{"metadata":{"name":"web"},"spec":{` + template +
			`,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"podUpdatePolicy":"InPlaceIfPossible","inPlaceUpdateStrategy":{"gracePeriodSeconds":9}}}}}`: beta,
	} {
		if err := json.Unmarshal([]byte(document), into); err != nil {
			t.Fatal(err)
		}
	}
	converted := alpha.ToV1beta1()
	first, second := planFor(converted).NewRevision, planFor(beta).NewRevision
	if diff := cmp.Diff(string(second.Data.Raw), string(first.Data.Raw)); diff != "" {
		t.Errorf("revision (-of v1beta1 +of v1alpha1):\n%s", diff)
	}
	if first.Name != second.Name {
		t.Errorf("name of the revision: of v1alpha1 %s, of v1beta1 %s", first.Name, second.Name)
	}
	if grace := converted.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy.GracePeriodSeconds; grace != 9 {
		t.Errorf("grace period %d", grace)
	}
	if grace := appsv1alpha1.CloneSetFromV1beta1(beta).Spec.UpdateStrategy.InPlaceUpdateStrategy.GracePeriodSeconds; grace != 9 {
		t.Errorf("grace period %d on the way back", grace)
	}
}
