package controller

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// nowhere is a workload whose replicas cannot be told, since no path leads to them.
type nowhere struct{ Workloads }

// Target implements Workloads.
func (nowhere) Target(_ context.Context, spread *appsv1beta1.WorkloadSpread, _ bool) (*workloadspread.Target, error) {
	target := &workloadspread.Target{Reference: workloadspread.TargetOf(spread), Exists: true}
	target.Desired, target.DesiredError = workloadspread.Replicas(map[string]any{}, spread.Spec.TargetFilter.ReplicasPathList)
	return target, nil
}

// WS-015: somebody has a WorkloadSpread with a path of a megabyte to the replicas, stored by an earlier release, and
// creates pods. Each of them is a line in the log of the replica that admits it, which is not as long as the path.
func TestALongPathDoesNotFillTheLog(t *testing.T) {
	spread := workloadspreadtest.Spread(workloadspreadtest.Subset("a", "50%"), workloadspreadtest.Subset("b", "50%"))
	spread.Spec.TargetFilter = &appsv1beta1.TargetFilter{ReplicasPathList: []string{strings.Repeat("x", 1<<20)}}
	logged := 0
	b := &Booker{workloads: nowhere{}, log: funcr.New(func(_, args string) { logged += len(args) }, funcr.Options{})}
	b.target(t.Context(), spread)
	if most := 4 << 10; logged == 0 || logged > most {
		t.Errorf("one created pod writes %d bytes to the log, want some and %d at most", logged, most)
	}
}
