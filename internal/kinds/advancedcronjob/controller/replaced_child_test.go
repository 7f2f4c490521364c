package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob/advancedcronjobtest"
)

// Somebody starts a run that hangs once more (kubectl replace --force), while the manager is being replaced or is busy: the child of that
// name has another UID than the one that the status lists. The AdvancedCronJob goes on: its status lists the new child, and when that
// has ended, the next run begins.
func TestAChildThatWasReplacedUnderItsNameDoesNotStopTheSchedule(t *testing.T) {
	for _, kind := range advancedcronjob.Kinds {
		for _, policy := range []appsv1beta1.ConcurrencyPolicy{appsv1beta1.ConcurrencyForbid, appsv1beta1.ConcurrencyReplace, appsv1beta1.ConcurrencyAllow} {
			s := newStage(t, CronJob(string(kind), "0 * * * *", Policy(policy), func(c *appsv1beta1.AdvancedCronJob) { c.UID = "" }))
			s.good(0)
			s.good(hour + time.Second)
			first := s.child(hour)
			if s.Get(first) == nil || len(s.status().Active) != 1 {
				t.Fatal("the first run did not begin, or is not in the status")
			}

			again := s.Get(first).DeepCopyObject().(client.Object)
			s.Remove(first)
			again.SetUID("")
			again.SetResourceVersion("")
			s.Store(first, again)
			s.Change(first, func(o client.Object) { Ended(true)(o) })

			planned := 0
			for i := range 60 {
				if wait := s.good(2*hour + time.Duration(i+1)*time.Minute); wait > time.Second {
					planned++
				}
			}
			if s.Get(s.child(2*hour)) == nil && s.Get(s.child(3*hour)) == nil {
				t.Errorf("%s, %s: an hour after the run of two o'clock was due it has not begun: the status lists %v; %d of 60 passes came to an end; events: %q",
					kind, policy, s.status().Active, planned, s.events())
			}
		}
	}
}
