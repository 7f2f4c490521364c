package metadata

import (
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/internal/node/retry"
)

// pausedFor is how long a handler lets requests wait.
type pausedFor struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	all []time.Duration
}

func (d *pausedFor) AddAfter(_ reconcile.Request, after time.Duration) { d.all = append(d.all, after) }

// IPU-130: a report comes a second after its reason, and failures are tried again after 0.5 s, doubled, up to about 55 s; the first stop
// comes 3 s after a container was found, and failures are tried again after twice the time each time, up to 10 min. Which containers, and
// how they are stopped, is shown by TestPlan and TestChangedEnvironmentRestartsOnce.
func TestPauses(t *testing.T) {
	q := &pausedFor{}
	(&reconciler{Options: Options{EnvFromMetadata: true}}).handler().Create(t.Context(), event.CreateEvent{Object: pod("a")}, q)
	if !slices.Equal(q.all, []time.Duration{time.Second}) {
		t.Errorf("reports wait %v", q.all)
	}
	stops, reports := restartPauses(), retry.Limiter[string]()
	for n, want := 0, 3*time.Second; n < 12; n, want = n+1, 2*want {
		if got := stops.When(target{}); got != min(want, 10*time.Minute) {
			t.Errorf("stop %d waits %s, not %s", n+1, got, want)
		}
	}
	for n, want := 0, 500*time.Millisecond; n < 12; n, want = n+1, 2*want {
		if got := reports.When(""); want < 50*time.Second && got != want ||
			want >= 50*time.Second && (got < 50*time.Second || got > 55*time.Second) {
			t.Errorf("report %d is tried again after %s", n+1, got)
		}
	}
}
