package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// Somebody gives a subset another name again and again, and pods of it are given up. Names of subsets that are gone do
// not stay in the metrics of the leader, and long ones of stored objects are cut.
func TestSubsetsThatAreGoneLeaveTheMetricsOfTheLeader(t *testing.T) {
	m := newMeters()
	for i := range 100 {
		subset := fmt.Sprint("s", i, strings.Repeat("x", 1000))
		pod := workloadspreadtest.Pod("p", workloadspreadtest.Note(pub.MatchedWorkloadSpread,
			pub.Placement{Name: "ws", Subset: subset}.String()))
		plan := &workloadspread.Plan{}
		plan.Status.Status.SubsetStatuses = []appsv1beta1.WorkloadSpreadSubsetStatus{{Name: subset}}
		m.observe(types.NamespacedName{Namespace: "shop", Name: "ws"}, Outcome{Plan: plan, Deleted: []*corev1.Pod{pod}})
	}
	for name, got := range map[string]int{"pods": testutil.CollectAndCount(m.pods), "passed": testutil.CollectAndCount(m.passed),
		"given": testutil.CollectAndCount(m.given)} {
		if got != 1 {
			t.Errorf("%s of a WorkloadSpread with one subset that had 100 names: got %d series, want 1", name, got)
		}
	}
}
