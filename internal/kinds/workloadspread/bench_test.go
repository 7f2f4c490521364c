package workloadspread

import (
	"fmt"
	"testing"

	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// BenchmarkPlan is one pass of the planner over 5000 pods at rest, some of them beyond a quota.
func BenchmarkPlan(b *testing.B) {
	spread := workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2000), workloadspreadtest.Subset("b", 2000),
		workloadspreadtest.Subset("c", nil))
	snapshot := Snapshot{Spread: spread, Target: webTarget(5000), Versioned: versions, Window: UnschedulableWindow,
		Now: workloadspreadtest.Clock}
	for i := range 5000 {
		snapshot.Pods = append(snapshot.Pods, workloadspreadtest.Pod(fmt.Sprintf("p%d", i),
			workloadspreadtest.Booked([]string{"a", "a", "b"}[i%3], fmt.Sprint(i)), workloadspreadtest.Ready(-i),
			workloadspreadtest.Born(-i-60)))
	}
	costed := Make(snapshot)
	byName := map[string]string{}
	for _, w := range costed.Writes {
		byName[w.Pod.Name] = w.Cost
	}
	for i, pod := range snapshot.Pods {
		next := pod.DeepCopy()
		workloadspreadtest.Cost(byName[pod.Name])(next)
		snapshot.Pods[i] = next
	}
	spread.Status = costed.Status.Status
	b.ReportAllocs()
	for b.Loop() {
		if plan := Make(snapshot); len(plan.Writes) > 0 {
			b.Fatalf("plan.Writes: got %d, want none\n%q", len(plan.Writes), plan.Headline())
		}
	}
}

// BenchmarkBurst is 10,000 pods that come at once, booked as many at a time as one write takes.
func BenchmarkBurst(b *testing.B) {
	const bookingBatch = 250
	for b.Loop() {
		spread := workloadspreadtest.Read(b, `{spec: {subsets: [{name: a, maxReplicas: 100000}]}}`)
		for i := 0; i < 10000; i += bookingBatch {
			l := NewLedger(spread, nil, workloadspreadtest.BookingTime)
			for j := range bookingBatch {
				_, commit := l.Create(Creation{Key: fmt.Sprintf("id-%d", i+j), Generated: true, Version: VersionIgnored})
				commit()
			}
			spread.Status.VersionedSubsetStatuses = l.Changed()
		}
	}
}
