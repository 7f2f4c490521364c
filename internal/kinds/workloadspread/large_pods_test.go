package workloadspread

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// A pod in no subset yet that has 8,000 variables is read once, and not again for each subset: that would be done
// each time that somebody changes a label of the pod (WS-143).
func TestALargePodIsReadOnceForAllSubsets(t *testing.T) {
	const subsets = 100
	variables := make([]string, 8_000)
	for i := range variables {
		variables[i] = fmt.Sprintf(`{"name":"V%d"}`, i)
	}
	pod := []byte(`{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","env":[` + strings.Join(variables, ",") + `]}]}}`)
	spread := workloadspreadtest.Spread()
	for i := range subsets {
		spread.Spec.Subsets = append(spread.Spec.Subsets, workloadspreadtest.Subset(fmt.Sprint("s", i), nil,
			workloadspreadtest.Patches(fmt.Sprintf(`{"metadata":{"labels":{"a":"%d"}}}`, i))))
	}
	took := func(subsets int) time.Duration {
		spent := cputime.Start(t)
		if fits, err := Fits(spread.Spec.Subsets[:subsets], pod, workloadspreadtest.Node("a")); err != nil || len(fits) != subsets {
			t.Fatalf("got %v and error %v, want all subsets", fits, err)
		}
		return spent()
	}
	one, all := took(1), took(subsets)
	if limit := 20*one + 100*time.Millisecond; all > limit {
		t.Errorf("%d subsets take %s where one takes %s, want %s at most", subsets, all, one, limit)
	}
}
