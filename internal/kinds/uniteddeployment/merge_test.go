package uniteddeployment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/engine/subset"
)

// withVariables is the document of a child whose container has these variables.
func withVariables(t *testing.T, variables ...string) map[string]any {
	t.Helper()
	object, err := subset.Object([]byte(`{"spec":{"template":{"metadata":{},"spec":{"containers":[{"name":"c","env":[` +
		strings.Join(variables, ",") + `]}]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// UD-068: items of lists correspond to each other by their names, unless a name occurs several times, and otherwise by
// their places.
func TestItemsOfListsCorrespondByName(t *testing.T) {
	const a, b = `{"name":"A","value":"1","x":"live"}`, `{"name":"B","value":"2","x":"live"}`
	for name, c := range map[string]struct{ live, after, want []string }{
		"another order":       {[]string{a, b}, []string{`{"name":"B"}`, `{"name":"A"}`}, []string{`{"name":"B","value":"2","x":"live"}`, a}},
		"one more":            {[]string{a}, []string{`{"name":"B"}`, `{"name":"A"}`}, []string{`{"name":"B"}`, a}},
		"a name twice":        {[]string{a, a}, []string{`{"name":"A"}`, `{"name":"A"}`}, []string{a, a}},
		"a name three times":  {[]string{a, a, a}, []string{`{"name":"A"}`}, []string{`{"name":"A"}`}},
		"a name that is gone": {[]string{a, b}, []string{`{"name":"C"}`, `{"name":"B"}`}, []string{`{"name":"C"}`, b}},
		"no names":            {[]string{`{"y":"1","x":"live"}`}, []string{`{"y":"1"}`}, []string{`{"y":"1","x":"live"}`}},
	} {
		// What was written before is what is written now, so that the live object's other fields stay.
		got := Merge(withVariables(t, c.live...), withVariables(t, c.after...), withVariables(t, c.after...))
		if diff := cmp.Diff(withVariables(t, c.want...)["spec"], got["spec"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What an update brings to a child with many variables is found by their names, each of them once, so that the time
// grows with their number, and not with its square.
func TestManyVariablesDoNotHoldUpTheUpdateOfAChild(t *testing.T) {
	took := func(count int) time.Duration {
		variables := make([]string, count)
		for i := range variables {
			variables[i] = fmt.Sprintf(`{"name":"V%d"}`, i)
		}
		live, before, after := withVariables(t, variables...), withVariables(t, variables...), withVariables(t, variables...)
		spent := cputime.Start(t)
		Merge(live, before, after)
		return spent()
	}
	few, many := took(1_500), took(12_000)
	if limit := 24*few + 200*time.Millisecond; many > limit {
		t.Errorf("12,000 variables take %s where 1,500 take %s, want %s at most, since they are 8 times as many", many, few, limit)
	}
}
