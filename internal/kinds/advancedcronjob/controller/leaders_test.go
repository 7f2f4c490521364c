package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob/advancedcronjobtest"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// ACJ-053 (D1): a manager leads no more and goes on for a moment, or its machine stood still in the middle of a
// pass: it does not know yet that the new leader has begun the run, that the run has ended, and that its child
// is gone, by its time to live or the limit of the history. The run does not begin a second time.
func TestAnOldLeaderDoesNotRepeatARunThatIsOver(t *testing.T) {
	for _, kind := range advancedcronjob.Kinds {
		s := newStage(t, CronJob(string(kind), "0 * * * *", func(c *appsv1beta1.AdvancedCronJob) {
			c.UID, c.Spec.SuccessfulJobsHistoryLimit = "", new(int32(0))
		}))
		s.good(0)

		// The old leader's caches show what there was at noon.
		behind := s.Fork()
		old := &Reconciler{API: s.API(), Events: s, Zone: time.UTC, meters: newMeters()}
		for _, kind := range advancedcronjob.Kinds {
			old.served.Add(kind)
		}
		loop := old.controller().Loop(nil)

		// The new leader begins the run at one o'clock. It ends within a second, and its child goes.
		s.good(hour + time.Second)
		child := s.child(hour)
		if s.Get(child) == nil {
			t.Fatal("the run did not begin")
		}
		s.Change(child, func(o client.Object) { Ended(true)(o) })
		s.good(hour + 2*time.Second)
		s.good(hour + 3*time.Second)
		if s.Get(child) != nil {
			t.Fatal("the child is there still")
		}
		if last := s.status().LastScheduleTime; last == nil || !last.Equal(At(hour)) {
			t.Fatalf("last schedule time: got %v, want one o'clock", last)
		}

		s.Pass(time.Second)
		s.As(behind, func() {
			_, _ = loop.Reconcile(t.Context(), reconcile.Request("shop", "nightly")) // its plan is stale
		})
		if got := s.Get(child); got != nil {
			t.Errorf("%s: the run of one o'clock began twice: %s", kind, got.GetName())
		}
	}
}

// ACJ-061: a manager that has just begun to lead knows the status, which lists the run that is under way, while
// its cache of children is behind: it was filled by an API server that lags. No second run begins beside the
// first one.
func TestANewLeaderHeedsTheActiveRunsOfTheStatus(t *testing.T) {
	for _, kind := range advancedcronjob.Kinds {
		s := newStage(t, CronJob(string(kind), "0 * * * *", Policy(appsv1beta1.ConcurrencyForbid),
			func(c *appsv1beta1.AdvancedCronJob) { c.UID = "" }))
		s.good(0)
		s.good(hour + time.Second)
		first := s.child(hour)
		if s.Get(first) == nil || len(s.status().Active) != 1 {
			t.Fatal("the first run did not begin, or is not in the status")
		}

		fresh := s.Fork()
		other := &Reconciler{API: s.API(), Events: s, Zone: time.UTC, meters: newMeters()}
		for _, kind := range advancedcronjob.Kinds {
			other.served.Add(kind)
		}
		loop := other.controller().Loop(nil)
		s.Pass(Noon.Add(2*hour + time.Second).Sub(s.Now()))
		s.As(fresh, func() {
			s.Hide(first)
			_, _ = loop.Reconcile(t.Context(), reconcile.Request("shop", "nightly")) // its plan is stale
		})
		if s.Get(s.child(2*hour)) != nil {
			t.Errorf("%s: concurrencyPolicy is Forbid, and the run of two o'clock began beside that of one o'clock; the status lists %d active",
				kind, len(s.status().Active))
		}
	}
}
