package uniteddeployment

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// A UnitedDeployment of a few kilobytes does not make the manager build a child that no memory holds, since each
// alternative of the node selector of the template gets each requirement of the subset (UD-070).
func TestAlternativesTimesRequirementsOfASubsetAreBounded(t *testing.T) {
	const count = 600
	terms, expressions := make([]string, count), make([]string, count)
	for i := range count {
		terms[i], expressions[i] = `{}`, fmt.Sprintf(`{"key":"k%d","operator":"Exists"}`, i)
	}
	with := func(alternatives, replicas int) *appsv1beta1.UnitedDeployment {
		affinity := `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[` +
			strings.Join(terms[:alternatives], ",") + `]}}},`
		return united(t, in(deployment, `"containers"`, affinity+`"containers"`), fmt.Sprintf(`"replicas":%d,`, replicas)+
			`"topology":{"subsets":[{"name":"a","nodeSelectorTerm":{"matchExpressions":[`+strings.Join(expressions, ",")+`]}}]}`)
	}

	if found := faults(with(30, 1), nil); len(found) > 0 {
		t.Errorf("30 alternatives: got %v, want that they are admitted", found)
	}
	large := with(count, 1)
	if got, want := faults(large, nil), []string{"Invalid spec.topology.subsets[0].nodeSelectorTerm"}; !slices.Equal(got, want) {
		t.Errorf("600 alternatives: got %v, want %v", got, want)
	}
	if got := faults(with(count, 2), large); len(got) > 0 {
		t.Errorf("a stored object with this fault is scaled: got %v, want no error", got)
	}

	template, err := TemplateOf(&large.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := template.Build(large, &large.Spec.Topology.Subsets[0], Wanted{Replicas: 1, Revision: "r"}); err == nil ||
		!strings.Contains(err.Error(), `nodeSelectorTerm of subset "a"`) {
		t.Errorf("a stored object with this fault: got error %v, want one that names the field before the child is built", err)
	}
}
