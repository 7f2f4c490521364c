package metadata

import (
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/internal/platform/pacing"
)

// pausedFor returns how long a handler delays requests.
type pausedFor struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	all []time.Duration
}

func (d *pausedFor) AddAfter(_ reconcile.Request, after time.Duration) { d.all = append(d.all, after) }

// IPU-130: a report is written one second after its cause. Failures are retried after 0.5 s, doubled up to
// about 55 s. The first stop is 3 s after a container was found; failures are retried with doubled pauses up
// to 10 min. TestPlan and TestChangedEnvironmentRestartsOnce show which containers are stopped, and how.
func TestFailuresAreRetriedWithGrowingPauses(t *testing.T) {
	q := &pausedFor{}
	(&reconciler{Options: Options{EnvFromMetadata: true}}).handler().Create(t.Context(), event.CreateEvent{Object: pod("a")}, q)
	if !slices.Equal(q.all, []time.Duration{time.Second}) {
		t.Errorf("reports are written after %v, want once after 1s", q.all)
	}
	stops, reports := restartPauses(), pacing.RetryLimiter[string]()
	for n, want := 0, 3*time.Second; n < 12; n, want = n+1, 2*want {
		if got := stops.When(target{}); got != min(want, 10*time.Minute) {
			t.Errorf("stop %d waits %s, not %s", n+1, got, want)
		}
	}
	for n, want := 0, 500*time.Millisecond; n < 12; n, want = n+1, 2*want {
		got := reports.When("")
		if want < 50*time.Second && got != want {
			t.Errorf("report %d is tried again after %s, want %s", n+1, got, want)
		}
		if want >= 50*time.Second && (got < 50*time.Second || got > 55*time.Second) {
			t.Errorf("report %d is tried again after %s, want 50s to 55s", n+1, got)
		}
	}
}
