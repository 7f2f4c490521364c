package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob/advancedcronjobtest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// stage is a cluster whose caches keep up, with an AdvancedCronJob called nightly in it and a manager that
// passes over it when it is told to.
type stage struct {
	*simulation.Cluster
	t    *testing.T
	kind string
	r    *Reconciler
	loop *reconcile.Loop
	told []string
}

func newStage(t *testing.T, cronJob *appsv1beta1.AdvancedCronJob) *stage {
	t.Helper()
	s := &stage{Cluster: simulation.New(1), t: t}
	s.Slim = slim.Any
	s.Begin(Noon)
	for _, kind := range advancedcronjob.Kinds {
		for _, index := range indexes(kind) {
			if err := index.Add(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	if cronJob != nil {
		s.kind = string(advancedcronjob.Templates(&cronJob.Spec.Template)[0])
		s.Store(cronJobKey, cronJob)
	}
	s.r = &Reconciler{API: s.API(), Events: s, Zone: time.UTC, meters: newMeters()}
	for _, kind := range advancedcronjob.Kinds {
		s.r.served.Add(kind)
	}
	s.loop = s.r.controller().Loop(nil)
	return s
}

var cronJobKey = simulation.Key{Kind: advancedcronjob.Name, Name: "nightly"}

// Event implements reconcile.Recorder.
func (s *stage) Event(about client.Object, eventType, reason, message string) {
	if about.GetName() != "nightly" {
		s.t.Errorf("told of %s", about.GetName())
	}
	s.told = append(s.told, fmt.Sprintf("%s %s: %s", eventType, reason, message))
}

// events are the events since they were asked for last.
func (s *stage) events() string {
	list := s.told
	s.told = nil
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// pass makes a pass so long after noon, and returns for how long it wants to wait then.
func (s *stage) pass(after time.Duration) (time.Duration, error) {
	s.t.Helper()
	s.Pass(Noon.Add(after).Sub(s.Now()))
	s.Deliver(1 << 20)
	result, err := s.loop.Reconcile(s.t.Context(), reconcile.Request("shop", "nightly"))
	s.Deliver(1 << 20)
	return result.RequeueAfter, err
}

// good makes a pass that must not fail.
func (s *stage) good(after time.Duration) time.Duration {
	s.t.Helper()
	wait, err := s.pass(after)
	if err != nil {
		s.t.Fatalf("a pass after %s: %v", after, err)
	}
	return wait
}

func (s *stage) status() *appsv1beta1.AdvancedCronJobStatus {
	return &s.Get(cronJobKey).(*appsv1beta1.AdvancedCronJob).Status
}

// all are the children.
func (s *stage) all() (names []string) {
	for _, object := range s.List(s.kind, false) {
		names = append(names, strings.TrimPrefix(object.GetName(), "nightly-1893"))
	}
	return names
}

func (s *stage) child(after time.Duration) simulation.Key {
	return simulation.Key{Kind: s.kind, Name: advancedcronjob.NameOf("nightly", Noon.Add(after))}
}

// failing fails requests with that verb about children.
func (s *stage) failing(verb string, err error) {
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == verb && r.Key.Kind == s.kind {
			return err
		}
		return nil
	}
}

const hour = time.Hour

// ACJ-001, ACJ-073, ACJ-103, ACJ-100 (part), ACJ-104 (part): a run from its time to its end, of each kind:
// the child, the status in the same pass, the events, and the metric.
func TestARunGoesFromItsTimeToItsEnd(t *testing.T) {
	for _, kind := range advancedcronjob.Kinds {
		s := newStage(t, CronJob(string(kind), "0 * * * *", func(c *appsv1beta1.AdvancedCronJob) { c.UID = "" }))
		wait := s.good(0)
		if wait != hour {
			t.Errorf("ACJ-015, ACJ-043, ACJ-056: s.good(0): got %v, want %v\n%+v", wait, hour, s.status())
		}
		if got := s.status().Type; got != string(kind) {
			t.Errorf("ACJ-015, ACJ-043, ACJ-056: s.status().Type: got %q, want %q\n%+v", got, string(kind), s.status())
		}
		if got := len(s.all()); got > 0 {
			t.Errorf("ACJ-015, ACJ-043, ACJ-056: s.all(): got %d, want none\n%+v", got, s.status())
		}
		s.good(hour + 2*time.Second)
		child := s.Get(s.child(hour))
		if child == nil {
			t.Fatal("child: got nil, want a value")
		} else if got := len(child.GetFinalizers()); got > 0 {
			t.Fatalf("child.GetFinalizers(): got %d, want none\n%+v", got, child)
		} else if got, want := advancedcronjob.OwnerOf(child), s.Get(cronJobKey).GetUID(); got != want {
			t.Fatalf("advancedcronjob.OwnerOf(child): got %q, want %q\n%+v", got, want, child)
		}
		status := s.status()
		if !status.LastScheduleTime.Equal(At(hour)) || len(status.Active) != 1 || status.Active[0].UID != child.GetUID() {
			t.Errorf("status: got %+v, want the run of %s active", status, At(hour))
		}
		const name = " nightly-1893502800"
		if got := s.events(); got != "Normal SuccessfulCreate: created "+string(kind)+name+" for the run of 2030-01-01T13:00:00Z" {
			t.Errorf("s.events(): got %q, want %q", got, "Normal SuccessfulCreate: created "+string(kind)+name+" for the run of 2030-01-01T13:00:00Z")
		}
		if n := testutil.CollectAndCount(s.r.meters.delay); n != 1 {
			t.Errorf("%d delays", n)
		}
		writes := len(s.Writes)
		if wait := s.good(hour + 3*time.Second); wait != hour-3*time.Second {
			t.Errorf("ACJ-056: %s", wait)
		}
		if len(s.Writes) != writes {
			t.Errorf("written at rest: len(s.Writes): got %d, want %d\n%v", len(s.Writes), writes, s.Writes[writes:])
		}
		if got := s.events(); got != "" {
			t.Errorf("written at rest: s.events(): got %q, want %q\n%v", got, "", s.Writes[writes:])
		}
		s.Change(s.child(hour), Ended(kind != advancedcronjob.BroadcastJob))
		s.good(hour + 4*time.Second)
		outcome := map[bool]string{true: " failed: so it is", false: " succeeded"}[kind == advancedcronjob.BroadcastJob]
		if got := s.events(); got != "Normal SawCompletedJob: "+string(kind)+name+outcome || len(s.status().Active) != 0 {
			t.Errorf("events: got %q; status: got %+v, want nothing active", got, s.status())
		}
		s.good(hour + 5*time.Second)
		if got := s.events(); got != "" {
			t.Errorf("told twice: %s", got)
		}
	}
}

// ACJ-092: with limits of 0, a TTL, or a deletion by hand, a run that ended is not begun again.
func TestARunIsNotBegunAgain(t *testing.T) {
	s := newStage(t, CronJob("Job", "0 * * * *", func(c *appsv1beta1.AdvancedCronJob) {
		c.Spec.SuccessfulJobsHistoryLimit, c.Spec.FailedJobsHistoryLimit = new(int32), new(int32)
	}))
	s.good(hour)
	s.Change(s.child(hour), Ended(true))
	s.good(hour + time.Minute)
	if got := s.events(); len(s.all()) > 0 || !strings.Contains(got, "Normal SuccessfulDelete: deleted Job nightly-1893502800") {
		t.Errorf("ACJ-090: children: got %v, want none; events: got %s, want that it was deleted", s.all(), got)
	}
	s.good(hour + 2*time.Minute)
	s.good(2 * hour)
	s.Remove(s.child(2 * hour)) // by a user, or by its TTL
	s.Restart()
	s.loop = s.r.controller().Loop(nil)
	s.good(2*hour + time.Minute)
	if len(s.all()) > 0 || !s.status().LastScheduleTime.Equal(At(2*hour)) {
		t.Errorf("children: got %v, want none; status: got %+v, want the second run last", s.all(), s.status())
	}
}

// ACJ-072, ACJ-103 (part): what becomes of a run whose child cannot be created.
func TestARunWhoseChildCannotBeCreatedIsJudgedByTheError(t *testing.T) {
	t.Run("it is there already", func(t *testing.T) {
		cronJob := CronJob("Job", "0 * * * *")
		s := newStage(t, cronJob)
		s.good(0)
		s.Store(s.child(hour), Made("Job", cronJob, hour, Held))
		s.Pass(hour)
		if _, err := s.loop.Reconcile(t.Context(), reconcile.Request("shop", "nightly")); err != nil { // the cache lags
			t.Fatal(err)
		}
		if got := s.events(); got != "" || len(s.status().Active) != 1 || !s.status().LastScheduleTime.Equal(At(hour)) || len(s.Get(s.child(hour)).GetFinalizers()) > 0 {
			t.Errorf("events: got %q, want none; status: got %+v, want it active and let go", got, s.status())
		}
	})
	t.Run("another has its name", func(t *testing.T) {
		s := newStage(t, CronJob("Job", "0 * * * *"))
		s.Store(s.child(hour), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "nightly-1893502800"}})
		s.good(hour)
		if got := s.events(); !strings.HasPrefix(got, "Warning UnexpectedJob: Job nightly-1893502800") || len(s.status().Active) != 0 || !s.status().LastScheduleTime.Equal(At(hour)) {
			t.Errorf("events: got %q, want UnexpectedJob first; status: got %+v, want nothing active", got, s.status())
		}
		s.good(hour + time.Minute)
		if got := s.events(); got != "" {
			t.Errorf("the run counts as handled: %s", got)
		}
	})
	t.Run("refused, and tried again while it is due", func(t *testing.T) {
		s := newStage(t, CronJob("Job", "0 * * * *"))
		s.failing("create", apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("exceeded quota")))
		if _, err := s.pass(hour); err == nil {
			t.Error("no error, so no other try")
		}
		if got := s.events(); !strings.HasPrefix(got, "Warning FailedCreate: creating Job nightly-1893502800: ") || !strings.Contains(got, "quota") ||
			s.status().LastScheduleTime != nil {
			t.Errorf("events: got %q, want that the quota is exceeded; status: got %+v, want no run", got, s.status())
		}
		s.Answer = nil
		s.good(hour + time.Minute)
		if len(s.all()) != 1 {
			t.Error("it is not tried again")
		}
	})
	t.Run("ACJ-074 the namespace is terminating", func(t *testing.T) {
		s := newStage(t, CronJob("Job", "0 * * * *"))
		ending := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("ending"))
		ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		s.failing("create", ending)
		wait := s.good(hour)
		if wait != hour {
			t.Errorf("s.good(hour): got %v, want %v", wait, hour)
		}
		if got := s.events(); got != "" {
			t.Errorf("s.events(): got %q, want %q", got, "")
		}
	})
}

// ACJ-062: with Replace active children are deleted before the next one is created, in the same pass; one
// that is gone is as it should be, any other error ends the pass, which is tried again.
func TestReplaceDeletesActiveChildrenBeforeTheNextIsCreated(t *testing.T) {
	for _, kind := range advancedcronjob.Kinds {
		s := newStage(t, CronJob(string(kind), "0 * * * *", Policy("Replace")))
		s.good(hour)
		s.events()
		s.failing("delete", apierrors.NewInternalError(errors.New("away")))
		if _, err := s.pass(2 * hour); err == nil {
			t.Errorf("err: got nil, want an error\n%v", s.all())
		} else if got := len(s.all()); got != 1 {
			t.Errorf("len(s.all()): got %d, want 1\n%v\n%v", got, err, s.all())
		}
		if got := s.events(); !strings.HasPrefix(got, "Warning FailedDelete: ") {
			t.Errorf("s.events(): got %q, want it to begin with %q", got, "Warning FailedDelete: ")
		}
		s.Answer = nil
		s.good(2*hour + time.Minute)
		if diff := cmp.Diff([]string{"506400"}, s.all()); diff != "" {
			t.Errorf("s.all() (-want +got):\n%s\n%+v", diff, s.status())
		} else if got := len(s.status().Active); got != 1 {
			t.Errorf("len(s.status().Active): got %d, want 1\n%+v", got, s.status())
		} else if got := s.status().Active[0].Name; got != "nightly-1893506400" {
			t.Errorf("s.status().Active[0].Name: got %q, want %q\n%+v", got, "nightly-1893506400", s.status())
		}
		got := s.events()
		if !strings.Contains(got, "Normal SuccessfulDelete") {
			t.Errorf("s.events(): got %q, want it to contain %q", got, "Normal SuccessfulDelete")
		}
		if !strings.Contains(got, "Normal SuccessfulCreate") {
			t.Errorf("s.events(): got %q, want it to contain %q", got, "Normal SuccessfulCreate")
		}
		s.failing("delete", apierrors.NewNotFound(schema.GroupResource{}, ""))
		s.good(3 * hour)
		if !slices.Contains(s.all(), "510000") {
			t.Errorf("not found: %v", s.all())
		}
	}
}

// ACJ-091: an error of history is told and tried again, and keeps no run from beginning.
func TestAnErrorOfHistoryKeepsNoRunFromBeginning(t *testing.T) {
	s := newStage(t, CronJob("Job", "0 * * * *", func(c *appsv1beta1.AdvancedCronJob) { c.Spec.SuccessfulJobsHistoryLimit = new(int32) }))
	s.good(hour)
	s.Change(s.child(hour), Ended(true))
	s.events()
	s.failing("delete", apierrors.NewInternalError(errors.New("away")))
	if _, err := s.pass(2 * hour); err == nil {
		t.Errorf("err: got nil, want an error\n%v", s.all())
	} else if got := len(s.all()); got != 2 {
		t.Errorf("len(s.all()): got %d, want 2\n%v\n%v", got, err, s.all())
	}
	got := s.events()
	if !strings.Contains(got, "Warning FailedDelete: deleting Job nightly-1893502800: ") {
		t.Errorf("s.events(): got %q, want it to contain %q", got, "Warning FailedDelete: deleting Job nightly-1893502800: ")
	}
	if !strings.Contains(got, "SuccessfulCreate") {
		t.Errorf("s.events(): got %q, want it to contain %q", got, "SuccessfulCreate")
	}
	s.failing("delete", apierrors.NewNotFound(schema.GroupResource{}, ""))
	s.good(2*hour + time.Second)
	if got := s.events(); strings.Contains(got, "FailedDelete") {
		t.Errorf("not found is success: %s", got)
	}
}

// ACJ-102, ACJ-041: the status is written first; a conflict is tried again at once, with nothing done in
// between.
func TestAConflictOfTheStatusIsTriedAgainWithNothingDone(t *testing.T) {
	s := newStage(t, CronJob("Job", "0 * * * *"))
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "patch" && r.Subresource == "status" {
			return apierrors.NewConflict(schema.GroupResource{}, "", errors.New("another version"))
		}
		return nil
	}
	wait := s.good(hour)
	if wait != reconcile.RetrySoon {
		t.Errorf("s.good(hour): got %v, want %v\n%v", wait, reconcile.RetrySoon, s.all())
	}
	if got := len(s.all()); got > 0 {
		t.Errorf("s.all(): got %d, want none\n%v", got, s.all())
	}
	s.Answer = nil
	s.good(hour + time.Second)
	if len(s.all()) != 1 {
		t.Error("nothing began")
	}
}

// ACJ-103 (part): what holds runs is told once, what is wrong with the object again when it is wrong again.
func TestEventsAreBounded(t *testing.T) {
	s := newStage(t, CronJob("Job", "* * * * *", Policy("Forbid"), Deadline(10)))
	s.good(time.Minute)
	s.events()
	for i := 2; i < 60; i++ {
		s.good(time.Duration(i) * time.Minute)
		s.good(time.Duration(i)*time.Minute + 30*time.Second)
	}
	if got := s.told; len(got) != 2 {
		t.Errorf("len(got): got %d, want 2; %d events: %v", len(got), len(got), got)
	} else if !strings.HasPrefix(got[0], "Normal JobAlreadyActive: ") {
		t.Errorf("got[0]: got %q, want it to begin with %q; %d events: %v", got[0], "Normal JobAlreadyActive: ", len(got), got)
	} else if !strings.HasPrefix(got[1], "Warning MissSchedule: ") {
		t.Errorf("got[1]: got %q, want it to begin with %q; %d events: %v", got[1], "Warning MissSchedule: ", len(got), got)
	}
	if n := testutil.ToFloat64(s.r.meters.dropped.WithLabelValues("shop", "nightly")); n != 58 { // ACJ-104 (part)
		t.Errorf("%v were left out", n)
	}
	s.events()
	for i, schedule := range []string{"soon", "soon", "* * * * *", "soon"} {
		s.Change(cronJobKey, func(o client.Object) { o.(*appsv1beta1.AdvancedCronJob).Spec.Schedule = schedule })
		if wait := s.good(hour + time.Duration(i)*time.Second); (wait == 0) != (schedule == "soon") {
			t.Errorf("ACJ-058: again after %s", wait)
		}
	}
	if got := strings.Count(s.events(), "Warning UnparseableSchedule"); got != 2 {
		t.Errorf("%d events", got)
	}
	s.Remove(cronJobKey)
	s.good(2 * hour)
	if n := testutil.CollectAndCount(s.r.meters.dropped); n != 0 {
		t.Errorf("%d metrics of what is gone", n)
	}
}

// A child that was created and not noted is let go when its AdvancedCronJob is gone, was replaced by another
// of its name, or lost it.
func TestNobodysChildrenAreLetGo(t *testing.T) {
	former := CronJob("Job", "0 0 1 1 *", func(c *appsv1beta1.AdvancedCronJob) { c.UID = "former" })
	for name, replaced := range map[string]bool{"gone": false, "replaced": true} {
		s := newStage(t, nil)
		s.kind = "Job"
		if replaced {
			s.Store(cronJobKey, CronJob("Job", "0 0 1 1 *"))
		}
		s.Store(s.child(hour), Made("Job", former, hour, Held, Going))
		s.good(hour)
		if s.Get(s.child(hour)) != nil {
			t.Errorf("%s: it is held for ever", name)
		}
	}
	s := newStage(t, nil)
	s.kind = "Job"
	orphan := Made("Job", former, hour, Held, func(o client.Object) { o.SetOwnerReferences(nil) })
	s.Store(s.child(hour), orphan)
	s.Deliver(1 << 20)
	asked := requests(t.Context(), orphan)
	if len(asked) != 1 {
		t.Fatalf("len(asked): got %d, want 1\n%v", len(asked), asked)
	} else if asked[0].Namespace != "shop" {
		t.Fatalf("asked[0].Namespace: got %q, want %q\n%v", asked[0].Namespace, "shop", asked)
	}
	if _, err := s.loop.Reconcile(t.Context(), asked[0]); err != nil {
		t.Errorf("unexpected error: %v\n%v", err, s.Get(s.child(hour)).GetFinalizers())
	} else if got := len(s.Get(s.child(hour)).GetFinalizers()); got > 0 {
		t.Errorf("s.Get(s.child(hour)).GetFinalizers(): got %d, want none\n%v\n%v", got, err, s.Get(s.child(hour)).GetFinalizers())
	}
}

// ACJ-040 (part): whose events ask for a pass over what, and which updates do not. Its watches are tested on
// a real API server.
func TestRequests(t *testing.T) {
	for _, kind := range advancedcronjob.Kinds {
		cronJob := CronJob(string(kind), "@daily")
		child := Made(string(kind), cronJob, hour)
		if got := requests(t.Context(), child); len(got) != 1 || got[0] != reconcile.Request("shop", "nightly") {
			t.Errorf("requests for a child: got %v, want one for shop/nightly", got)
		}
		stranger := Made(string(kind), cronJob, hour, func(o client.Object) { o.SetOwnerReferences(nil) })
		if got := requests(t.Context(), stranger); len(got) != 0 {
			t.Errorf("len(got): got %d, want 0\n%v", len(got), got)
		}
		for name, test := range map[string]struct {
			change func(client.Object)
			want   bool
		}{"nothing": {func(o client.Object) { o.SetResourceVersion("8"); o.SetLabels(map[string]string{"a": "b"}) }, false}, "its end": {Ended(true), true},
			"its deletion": {Going, true}, "its start": {Started(hour), true}, "its finalizer": {Held, true},
			"its owner": {func(o client.Object) { o.SetOwnerReferences(nil) }, true},
			"its time":  {func(o client.Object) { o.SetAnnotations(map[string]string{pub.ScheduledAt: "2031-01-01T00:00:00Z"}) }, true}} {
			after := child.DeepCopyObject().(client.Object)
			test.change(after)
			if got := changed(event.UpdateEvent{ObjectOld: child, ObjectNew: after}); got != test.want {
				t.Errorf("%s of a %s: %v", name, kind, got)
			}
		}
	}
}

// ACJ-104: the delay of a run by the kind of its child, the runs that were left out by namespace and name,
// and the name of the controller.
func TestRunsAreMeasuredByKindAndName(t *testing.T) {
	s := newStage(t, CronJob("Job", "0 * * * *", Deadline(60)))
	s.good(2*hour + 30*time.Second)
	want := `
# HELP afloat_advancedcronjob_dropped_runs_total Times of schedules that were left out, because they were too late or because a later one had come.
# TYPE afloat_advancedcronjob_dropped_runs_total counter
afloat_advancedcronjob_dropped_runs_total{name="nightly",namespace="shop"} 1
`
	if err := testutil.CollectAndCompare(s.r.meters.dropped, strings.NewReader(want)); err != nil {
		t.Errorf("runs that were dropped: %v", err)
	}
	if text, err := testutil.CollectAndFormat(s.r.meters.delay, expfmt.TypeTextPlain, "afloat_advancedcronjob_start_delay_seconds"); err != nil {
		t.Errorf("unexpected error: %v\n%s", err, text)
	} else if !strings.Contains(string(text), `afloat_advancedcronjob_start_delay_seconds_sum{kind="Job"} 30`) {
		t.Errorf("text: got %q, want it to contain %q\n%v", string(text), `afloat_advancedcronjob_start_delay_seconds_sum{kind="Job"} 30`,
			err)
	}
	if controllerName != "advancedcronjob-controller" {
		t.Errorf("name of the controller: got %s, want advancedcronjob-controller", controllerName)
	}
}

// ACJ-122: a kind that is not served is not asked for; its runs wait, with an event, and others begin.
func TestAKindThatIsNotServed(t *testing.T) {
	s := newStage(t, CronJob("BroadcastJob", "0 * * * *"))
	s.r.served = reconcile.ServedKinds[advancedcronjob.Kind]{}
	s.r.served.Add(advancedcronjob.Job)
	s.Answer = func(r *simulation.Request) error { return nil }
	s.good(hour)
	if got := s.events(); len(s.all()) > 0 || !strings.Contains(got, "Warning FailedCreate: the run of 2030-01-01T13:00:00Z waits: the cluster does not serve BroadcastJobs") {
		t.Errorf("children: got %v, want none; events: got %q, want that the run waits", s.all(), got)
	}
	other := newStage(t, CronJob("Job", "0 * * * *"))
	other.r.served = reconcile.ServedKinds[advancedcronjob.Kind]{}
	other.r.served.Add(advancedcronjob.Job)
	if other.good(hour); len(other.all()) != 1 {
		t.Error("no run of a kind that is served")
	}
	s.r.served.Add(advancedcronjob.BroadcastJob)
	s.good(hour + time.Minute)
	if len(s.all()) != 1 {
		t.Error("it does not begin when the kind is served")
	}
}

// What the caches keep of Jobs is enough for plans, and no more than before of Jobs of others.
func TestCachedJobsAreEnoughForPlans(t *testing.T) {
	for owner, kept := range map[string]bool{"AdvancedCronJob": true, "CronJob": false} {
		job := Made("Job", CronJob("Job", "@daily"), hour, Started(hour), Ended(false)).(*batchv1.Job)
		job.OwnerReferences[0].Kind = owner
		job.Annotations["other"], job.Spec.Template.Spec.Containers = "x", make([]corev1.Container, 1)
		if _, err := slim.Any(job); err != nil {
			t.Fatal(err)
		}
		child := advancedcronjob.ChildOf(job)
		if (child.Phase == advancedcronjob.Failed) != kept {
			t.Errorf("child.Phase == advancedcronjob.Failed: got %t, want %t; of a %s: %+v", child.Phase == advancedcronjob.Failed, kept, owner,
				job)
		}
		if child.Nominal.IsZero() == kept {
			t.Errorf("child.Nominal.IsZero(): got %t, want another value; of a %s: %+v", child.Nominal.IsZero(), owner, job)
		}
		if child.Started.IsZero() == kept {
			t.Errorf("child.Started.IsZero(): got %t, want another value; of a %s: %+v", child.Started.IsZero(), owner, job)
		}
		if job.Annotations["other"] != "" {
			t.Errorf(`job.Annotations["other"]: got %q, want %q; of a %s: %+v`, job.Annotations["other"], "", owner, job)
		}
		if len(job.Spec.Template.Spec.Containers) > 0 {
			t.Errorf("containers: got %v, want none; of a %s: %+v", job.Spec.Template.Spec.Containers, owner, job)
		}
		if len(job.Status.Conditions) > 1 {
			t.Errorf("len(job.Status.Conditions): got %d, want at most 1; of a %s: %+v", len(job.Status.Conditions), owner, job)
		}
	}
}
