package workloadspread

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// WS-152, WS-174: a time that a clock far ahead has written keeps no place, and no subset, until then; clocks may differ a little.
func TestTimesFarAhead(t *testing.T) {
	for name, tt := range map[string]struct {
		ahead time.Duration
		kept  bool
	}{"a little": {20 * time.Second, true}, "a year": {365 * 24 * time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			then := metav1.NewTime(workloadspreadtest.Clock.Add(tt.ahead))
			before := []appsv1beta1.WorkloadSpreadSubsetStatus{{Name: "a"}}
			before[0].CreatingPods = map[string]metav1.Time{"id": then}
			counted := Count([]SubsetQuota{{"a", 3}}, before, "v", nil, workloadspreadtest.Clock)
			if got := counted.Subsets[0].MissingReplicas == 2; got != tt.kept || (len(counted.Lost) == 0) != tt.kept {
				t.Errorf("%+v", counted)
			}
			old := &metav1.Condition{Type: "Schedulable", Status: metav1.ConditionFalse, LastTransitionTime: then}
			if c, recovered, _ := nextCondition(old, false, 0, time.Minute, UnschedulableWindow,
				workloadspreadtest.Clock); (c.Status == metav1.ConditionFalse) != tt.kept || recovered == tt.kept {
				t.Errorf("%+v", c)
			}
		})
	}
}
