package advancedcronjob_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	. "github.com/afloat-project/afloat/internal/kinds/advancedcronjob/advancedcronjobtest"
)

// snapshot is that of an AdvancedCronJob with children, so long after noon.
func snapshot(cronJob *appsv1beta1.AdvancedCronJob, after time.Duration, children ...client.Object) Snapshot {
	s := Snapshot{CronJob: cronJob, Now: Noon.Add(after), Zone: time.UTC}
	for _, child := range children {
		s.Children = append(s.Children, ChildOf(child))
	}
	return s
}

// told are the reasons of the notes of a plan.
func told(p *Plan) string {
	var reasons []string
	for _, note := range p.Notes {
		reasons = append(reasons, note.Reason)
	}
	return strings.Join(reasons, " ")
}

func names(children []Child) string {
	var all []string
	for _, child := range children {
		all = append(all, child.Object.GetName())
	}
	return strings.Join(all, " ")
}

// begins is how long after noon the run is whose time has come; nothing for none.
func begins(p *Plan) string {
	if p.Run == nil {
		return ""
	}
	return p.Run.Time.Sub(Noon).String()
}

const minute = time.Minute

// ACJ-002 (part), ACJ-051 to ACJ-056, ACJ-059: which run is due, what is told of those that are not, and when
// is the next.
func TestDue(t *testing.T) {
	hour := time.Hour
	type cron = appsv1beta1.AdvancedCronJob
	zone := func(name string) func(*cron) { return func(c *cron) { c.Spec.TimeZone = &name } }
	for name, test := range map[string]struct {
		schedule string
		change   []func(*cron)
		after    time.Duration
		children []client.Object
		run      string
		told     string
		next     string
		dropped  int
	}{
		"ACJ-059 not for times before the creation":      {schedule: "0 * * * *", after: 59 * minute, next: "1h0m0s"},
		"ACJ-059 the time of the creation is before it":  {schedule: "0 * * * *", next: "1h0m0s"},
		"ACJ-051 from the creation":                      {schedule: "0 * * * *", after: hour, run: "1h0m0s", next: "2h0m0s"},
		"ACJ-051 from the last run":                      {schedule: "0 * * * *", change: []func(*cron){Last(hour)}, after: hour + 59*minute, next: "2h0m0s"},
		"ACJ-052 the latest of several, others are left": {schedule: "0 * * * *", after: 3*hour + minute, run: "3h0m0s", next: "4h0m0s", dropped: 2},
		"ACJ-053 a child that the status does not know": {schedule: "0 * * * *", after: hour + minute, next: "2h0m0s",
			children: []client.Object{Made("Job", CronJob("Job", ""), hour)}},
		"ACJ-053 the status, without any child": {schedule: "0 * * * *", change: []func(*cron){Last(hour)}, after: hour + minute, next: "2h0m0s"},
		"ACJ-053 an older child takes nothing back": {schedule: "0 * * * *", change: []func(*cron){Last(2 * hour)}, after: 2*hour + minute, next: "3h0m0s",
			children: []client.Object{Made("Job", CronJob("Job", ""), hour)}},
		"ACJ-053 a time of a child that has not come says nothing": {schedule: "0 * * * *", after: hour + minute, run: "1h0m0s", next: "2h0m0s",
			children: []client.Object{Made("Job", CronJob("Job", ""), 1000*hour)}},
		"ACJ-051 a status ahead of now: nothing is due": {schedule: "0 * * * *", change: []func(*cron){Last(5 * hour)}, after: 2 * hour, next: "6h0m0s"},
		"ACJ-054 100 missed":                            {schedule: "* * * * *", after: 100 * minute, run: "1h40m0s", next: "1h41m0s", dropped: 99},
		"ACJ-054 101 missed":                            {schedule: "* * * * *", after: 101 * minute, run: "1h41m0s", next: "1h42m0s", dropped: 100, told: "TooManyMissedTimes"},
		"ACJ-054 ten years":                             {schedule: "* * * * *", after: 87660 * hour, run: "87660h0m0s", next: "87660h1m0s", dropped: 1000, told: "TooManyMissedTimes"},
		"ACJ-055 in time":                               {schedule: "0 * * * *", change: []func(*cron){Deadline(60)}, after: hour + 60*time.Second, run: "1h0m0s", next: "2h0m0s"},
		"ACJ-055 in time by whole seconds": {schedule: "0 * * * *", change: []func(*cron){Deadline(0)}, after: hour + 999*time.Millisecond, run: "1h0m0s",
			next: "2h0m0s"},
		"ACJ-055 too late": {schedule: "0 * * * *", change: []func(*cron){Deadline(60)}, after: hour + 61*time.Second, next: "2h0m0s", told: "MissSchedule",
			dropped: 1},
		"ACJ-055 one is too late, another in time": {schedule: "*/5 * * * *", change: []func(*cron){Deadline(60)}, after: 10 * minute, run: "10m0s", next: "15m0s",
			told: "MissSchedule", dropped: 1},
		"ACJ-055 a deadline beyond all time": {schedule: "0 * * * *", change: []func(*cron){Deadline(1 << 62)}, after: hour, run: "1h0m0s", next: "2h0m0s"},
		"ACJ-055 stored before validation":   {schedule: "0 * * * *", change: []func(*cron){Deadline(-5)}, after: hour, run: "1h0m0s", next: "2h0m0s"},
		"ACJ-057 every, from the creation":   {schedule: "@every 7m", after: 15 * minute, run: "14m0s", next: "21m0s", dropped: 1},
		"ACJ-057 every, from the last run":   {schedule: "@every 7m", change: []func(*cron){Last(10 * minute)}, after: 17 * minute, run: "17m0s", next: "24m0s"},
		"ACJ-057 every, with a deadline":     {schedule: "@every 1h", change: []func(*cron){Deadline(60)}, after: hour, run: "1h0m0s", next: "2h0m0s"},
		"ACJ-050 the zone of the object":     {schedule: "0 15 * * *", change: []func(*cron){zone("Europe/Berlin")}, after: 2 * hour, run: "2h0m0s", next: "26h0m0s"},
		"ACJ-050 the zone of the schedule":   {schedule: "TZ=Europe/Berlin 0 15 * * *", change: []func(*cron){zone("Asia/Tokyo")}, after: 2 * hour, run: "2h0m0s", next: "26h0m0s"},
		"ACJ-054 never":                      {schedule: "0 0 30 2 *", after: 1000 * hour},
	} {
		plan := Make(snapshot(CronJob("Job", test.schedule, test.change...), test.after, test.children...))
		next := ""
		if !plan.Next.IsZero() {
			next = plan.Next.Sub(Noon).String()
			if plan.After != plan.Next.Sub(Noon)-test.after {
				t.Errorf("%s: ACJ-056: again after %s", name, plan.After)
			}
		}
		if got := begins(plan); got != test.run {
			t.Errorf("%s: run that begins: got %q, want %q; run %q, told %q, next %q, %d dropped: %s", name, got, test.run, begins(plan),
				told(plan), next, plan.Dropped, plan.Message)
		}
		if got := told(plan); got != test.told {
			t.Errorf("%s: told: got %q, want %q; run %q, told %q, next %q, %d dropped: %s", name, got, test.told, begins(plan), told(plan),
				next, plan.Dropped, plan.Message)
		}
		if next != test.next {
			t.Errorf("%s: next: got %q, want %q; run %q, told %q, next %q, %d dropped: %s", name, next, test.next, begins(plan), told(plan),
				next, plan.Dropped, plan.Message)
		}
		if plan.Dropped != test.dropped {
			t.Errorf("%s: dropped: got %d, want %d; run %q, told %q, next %q, %d dropped: %s", name, plan.Dropped, test.dropped,
				begins(plan), told(plan), next, plan.Dropped, plan.Message)
		}
		if plan.Message == "" {
			t.Errorf("%s: no message", name)
		}
	}
}

// ACJ-104 (part): times that are left out are counted once.
func TestDroppedTimesAreCountedOnce(t *testing.T) {
	s := snapshot(CronJob("Job", "0 * * * *", Deadline(60)), 3*time.Hour+2*minute)
	first := Make(s)
	s.Counted, s.Now = first.Counted, s.Now.Add(minute)
	second := Make(s)
	if first.Dropped != 3 {
		t.Errorf("dropped the first time: got %d, want 3", first.Dropped)
	}
	if second.Dropped != 0 {
		t.Errorf("dropped the second time: got %d, want 0", second.Dropped)
	}
	s.Now = s.Now.Add(time.Hour)
	if third := Make(s); third.Dropped != 1 {
		t.Errorf("dropped the third time: got %d, want 1", third.Dropped)
	}
}

// ACJ-050: without another one the zone is that of the manager; one that cannot be loaded stops scheduling
// with an event.
func TestAZoneThatCannotBeLoadedStopsScheduling(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s := snapshot(CronJob("Job", "0 15 * * *"), 3*time.Hour)
	s.Zone = berlin
	plan := Make(s)
	if got := begins(plan); got != "2h0m0s" {
		t.Errorf("run that begins: got %q, want %q", got, "2h0m0s")
	}
	if got := plan.Run.Time.Format(time.RFC3339); got != "2030-01-01T15:00:00+01:00" {
		t.Errorf("time of the run: got %q, want %q", got, "2030-01-01T15:00:00+01:00")
	}
	s.Zone = nil
	if plan := Make(s); begins(plan) != "3h0m0s" {
		t.Errorf("UTC for want of another: %s", begins(plan))
	}
	for _, cronJob := range []*appsv1beta1.AdvancedCronJob{CronJob("Job", "TZ=Europe/Atlantis 0 15 * * *"),
		CronJob("Job", "0 15 * * *", func(c *appsv1beta1.AdvancedCronJob) { c.Spec.TimeZone = new("Europe/Atlantis") }),
		CronJob("Job", "0 15 * * *", func(c *appsv1beta1.AdvancedCronJob) { c.Spec.TimeZone = new("") })} {
		plan := Make(snapshot(cronJob, 9*time.Hour))
		if plan.Run != nil {
			t.Errorf("%s %s: run: got %+v, want nil\n%+v", cronJob.Spec.Schedule, begins(plan), plan.Run, plan)
		} else if plan.After != 0 {
			t.Errorf("%s %s: time to the next pass: got %v, want 0\n%+v", cronJob.Spec.Schedule, begins(plan), plan.After, plan)
		} else if plan.Reason != NoZone {
			t.Errorf("%s %s: reason: got %q, want %q\n%+v", cronJob.Spec.Schedule, begins(plan), plan.Reason, NoZone, plan)
		} else if len(plan.Notes) != 1 {
			t.Errorf("%s %s: number of notes: got %d, want 1\n%+v", cronJob.Spec.Schedule, begins(plan), len(plan.Notes), plan)
		} else if plan.Notes[0].Type != "Warning" {
			t.Errorf("%s %s: type of the first note: got %q, want %q\n%+v", cronJob.Spec.Schedule, begins(plan), plan.Notes[0].Type, "Warning", plan)
		} else if got := told(plan); got != "UnknownTimeZone" {
			t.Errorf("%s %s: told: got %q, want %q\n%+v", cronJob.Spec.Schedule, begins(plan), got, "UnknownTimeZone", plan)
		}
	}
}

// ACJ-058: a schedule that cannot be read stops the object with an event; it is not looked at again until
// something changes.
func TestAScheduleThatCannotBeReadStopsTheObject(t *testing.T) {
	for _, schedule := range []string{"", "TZ=0", "every day", "61 * * * *", strings.Repeat("*", 5000)} {
		plan := Make(snapshot(CronJob("Job", schedule), 9*time.Hour))
		if plan.Run != nil {
			t.Errorf("%q: run: got %+v, want nil\n%+v", schedule, plan.Run, plan)
		} else if plan.After != 0 {
			t.Errorf("%q: time to the next pass: got %v, want 0\n%+v", schedule, plan.After, plan)
		} else if plan.Reason != NoSchedule {
			t.Errorf("%q: reason: got %q, want %q\n%+v", schedule, plan.Reason, NoSchedule, plan)
		} else if got := told(plan); got != "UnparseableSchedule" {
			t.Errorf("%q: told: got %q, want %q\n%+v", schedule, got, "UnparseableSchedule", plan)
		} else if plan.Notes[0].Type != "Warning" {
			t.Errorf("%q: type of the first note: got %q, want %q\n%+v", schedule, plan.Notes[0].Type, "Warning", plan)
		} else if len(plan.Notes[0].Message) > 500 {
			t.Errorf("%q: length of the message of the first note: got %d, want at most 500\n%+v", schedule, len(plan.Notes[0].Message), plan)
		}
	}
}

// ACJ-031, ACJ-032, ACJ-100: what children say of their runs, of each kind; the status lists the active ones
// by their times, in any phase of deletion.
func TestChildrenTellOfTheirRuns(t *testing.T) {
	for _, kind := range Kinds {
		cronJob := CronJob(string(kind), "@every 1h")
		child := func(after time.Duration, changes ...func(client.Object)) client.Object {
			return Made(string(kind), cronJob, after, changes...)
		}
		unreadable := func(text string) func(client.Object) {
			return func(o client.Object) {
				o.SetAnnotations(map[string]string{pub.ScheduledAt: text})
				o.SetName("x" + text)
				o.SetUID("x")
			}
		}
		if got := ChildOf(child(0, Ended(true))).Phase; got != Succeeded {
			t.Errorf("ACJ-031: phase of a child that succeeded: got %v, want %v\n%s", got, Succeeded, kind)
		}
		if got := ChildOf(child(0, Ended(false))).Phase; got != Failed {
			t.Errorf("ACJ-031: phase of a child that failed: got %v, want %v\n%s", got, Failed, kind)
		}
		if got := ChildOf(child(0)).Phase; got != Active {
			t.Errorf("ACJ-031: phase of a child that runs: got %v, want %v\n%s", got, Active, kind)
		}
		plan := Make(snapshot(cronJob, 30*minute, child(20*minute), child(10*minute, Going), child(5*minute, Ended(true)), child(0, unreadable("soon"))))
		var active []string
		for _, reference := range plan.Status.Active {
			active = append(active, strings.Join([]string{reference.APIVersion, reference.Kind, reference.Namespace, reference.Name, string(reference.UID),
				reference.ResourceVersion}, " "))
		}
		of := kind.APIVersion() + " " + string(kind) + " shop "
		want := []string{of + "xsoon x 7", of + "nightly-1893499800 nightly-1893499800 7", of + "nightly-1893500400 nightly-1893500400 7"}
		if diff := cmp.Diff(want, active); diff != "" {
			t.Errorf("ACJ-100 %s: %s", kind, diff)
		}
		if last := plan.Status.LastScheduleTime; plan.Status.Type != string(kind) {
			t.Errorf("ACJ-015, ACJ-032: type: got %q, want %q\n%+v", plan.Status.Type, string(kind), plan.Status)
		} else if last == nil {
			t.Errorf("ACJ-015, ACJ-032: time of the last run: got nil, want a value\n%+v", plan.Status)
		} else if !last.Time.Equal(Noon.Add(20 * minute)) {
			t.Errorf("ACJ-015, ACJ-032: last: got %v, want %v\n%+v", last.Time, Noon.Add(20*minute), plan.Status)
		}
		cronJob.Status = plan.Status
		again := Make(snapshot(cronJob, 31*minute, child(20*minute, func(o client.Object) { o.SetResourceVersion("8") }), child(10*minute, Ended(false))))
		if len(again.Status.Active) != 1 {
			t.Errorf("the status follows each change of a child: number active the second time: got %d, want 1\n%+v", len(again.Status.Active),
				again.Status.Active)
		} else if again.Status.Active[0].ResourceVersion != "7" {
			t.Errorf("the status follows each change of a child: resource version of the first active the second time: got %q, want %q\n%+v",
				again.Status.Active[0].ResourceVersion, "7", again.Status.Active)
		}
		if got := names(again.Finished); got != "nightly-1893499800" {
			t.Errorf("ACJ-103: pods that are finished the second time: got %q, want %q\n%v", got, "nightly-1893499800", again.Finished)
		} else if again.Finished[0].Phase.String() != "failed" {
			t.Errorf("ACJ-103: phase of the first of the finished the second time: got %q, want %q\n%v", again.Finished[0].Phase.String(), "failed", again.Finished)
		} else if again.Finished[0].Why == "" {
			t.Errorf("ACJ-103: why of the first of the finished the second time: got nothing, want some text\n%v", again.Finished)
		}
		if none := Make(snapshot(cronJob, 31*minute)); none.Status.Active != nil {
			t.Errorf("ACJ-100, ACJ-101: active: got %v, want nil\n%+v", none.Status.Active, none.Status)
		} else if none.Status.LastScheduleTime == nil {
			t.Errorf("ACJ-100, ACJ-101: time of the last run: got nil, want a value\n%+v", none.Status)
		}
	}
	both := &batchv1.Job{}
	Ended(true)(both)
	both.Status.Conditions = append(both.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobFailed, Status: "True"})
	if ChildOf(both).Phase != Failed {
		t.Error("what has failed has not succeeded")
	}
}

// ACJ-100 (part): an object has a size; of very many active children the latest are listed.
func TestVeryManyActiveChildren(t *testing.T) {
	cronJob := CronJob("Job", "@every 1s")
	var children []client.Object
	for i := range 1500 {
		children = append(children, Made("Job", cronJob, time.Duration(i)*time.Second))
	}
	plan := Make(snapshot(cronJob, 1500*time.Second, children...))
	if n := len(plan.Status.Active); n != 1000 {
		t.Errorf("number active: got %d, want 1000", n)
	} else if plan.Status.Active[999].Name != children[1499].GetName() {
		t.Errorf("name of the last active one: got %q, want %q; %d are listed", plan.Status.Active[999].Name, children[1499].GetName(), n)
	}
	if status := plan.Started(&Child{Object: children[0], Kind: Job}); len(status.Active) != 1000 {
		t.Errorf("number active: got %d, want 1000", len(status.Active))
	} else if status.Active[999].Name != children[0].GetName() {
		t.Errorf("name of the last active one: got %q, want %q; %d are listed", status.Active[999].Name, children[0].GetName(),
			len(status.Active))
	}
}

// ACJ-060, ACJ-061, ACJ-062 (part): what active children mean for a run that is due.
func TestThePolicyDecidesWhatActiveChildrenMean(t *testing.T) {
	for _, kind := range Kinds {
		for policy, want := range map[appsv1beta1.ConcurrencyPolicy]string{"Allow": "2h0m0s | ", "": "2h0m0s | ",
			"Replace": "2h0m0s | nightly-1893502800", "Forbid": " | JobAlreadyActive"} {
			cronJob := CronJob(string(kind), "0 * * * *", Policy(policy), Last(time.Hour))
			active := Made(string(kind), cronJob, time.Hour)
			plan := Make(snapshot(cronJob, 2*time.Hour+minute, active, Made(string(kind), cronJob, minute, Ended(false)), Made(string(kind), cronJob, 2*minute, Going)))
			if got := begins(plan) + " | " + names(plan.Replace) + told(plan); got != want {
				t.Errorf(`%s %s: what begins, what is replaced, and what is told: got %q, want %q`, kind, policy, got, want)
			}
		}
	}
	// ACJ-061: it begins as soon as the other one has ended, unless its deadline has passed, or a newer time
	// has come.
	forbid := CronJob("Job", "0 * * * *", Policy("Forbid"), Last(time.Hour))
	waiting := Make(snapshot(forbid, 2*time.Hour, Made("Job", forbid, time.Hour)))
	if waiting.Reason != AlreadyActive {
		t.Errorf("reason: got %q, want %q\n%+v", waiting.Reason, AlreadyActive, waiting)
	} else if !strings.Contains(waiting.Message, "Job nightly-1893502800") {
		t.Errorf("message: got %q, want it to contain %q\n%+v", waiting.Message, "Job nightly-1893502800", waiting)
	} else if waiting.Notes[0].Type != "Normal" {
		t.Errorf("type of the first note: got %q, want %q\n%+v", waiting.Notes[0].Type, "Normal", waiting)
	} else if waiting.After != time.Hour {
		t.Errorf("time to the next pass: got %v, want %v\n%+v", waiting.After, time.Hour, waiting)
	}
	ended := Made("Job", forbid, time.Hour, Ended(true))
	if plan := Make(snapshot(forbid, 2*time.Hour+59*minute, ended)); begins(plan) != "2h0m0s" {
		t.Errorf("begins after the first ended: got %s, want the run of 2h0m0s", begins(plan))
	}
	if plan := Make(snapshot(forbid, 3*time.Hour, ended)); begins(plan) != "3h0m0s" {
		t.Errorf("a newer time: %s", begins(plan))
	}
	Deadline(60)(forbid)
	if plan := Make(snapshot(forbid, 2*time.Hour+2*minute, ended)); plan.Run != nil {
		t.Errorf("after its deadline: %s", begins(plan))
	}
	// D10: children made by hand have no time; they count for Forbid and history, and say nothing of what was
	// handled.
	byHand := Made("Job", forbid, 0, func(o client.Object) { o.SetAnnotations(nil) })
	if plan := Make(snapshot(forbid, 2*time.Hour, byHand)); plan.Reason != AlreadyActive || !plan.Status.LastScheduleTime.Equal(At(time.Hour)) {
		t.Errorf("beside a child made by hand: got %+v, want no run, and that of %s handled", plan, At(time.Hour))
	}
	forbid.Spec.SuccessfulJobsHistoryLimit = new(int32(0))
	plan := Make(snapshot(forbid, 2*time.Hour, Made("Job", forbid, 0, Ended(true), func(o client.Object) { o.SetAnnotations(nil) })))
	if got := begins(plan); got != "2h0m0s" {
		t.Errorf("run that begins: got %q, want %q\n%+v", got, "2h0m0s", plan)
	}
	if len(plan.Delete) != 1 {
		t.Errorf("number deleted: got %d, want 1\n%+v", len(plan.Delete), plan)
	}
}

// ACJ-042, ACJ-080, ACJ-081: nothing begins while it is paused or being deleted; status, and history while it
// is paused, are maintained.
func TestNothingBeginsWhilePausedOrDeleted(t *testing.T) {
	cronJob := CronJob("Job", "0 * * * *", Policy("Replace"))
	cronJob.Spec.FailedJobsHistoryLimit = new(int32(0))
	children := []client.Object{Made("Job", cronJob, time.Hour), Made("Job", cronJob, minute, Ended(false))}
	cronJob.Spec.Paused = new(true)
	plan := Make(snapshot(cronJob, 5*time.Hour, children...))
	if plan.Run != nil {
		t.Errorf("ACJ-080: run: got %+v, want nil\n%+v", plan.Run, plan)
	} else if len(plan.Replace) > 0 {
		t.Errorf("ACJ-080: replaced: got %v, want none\n%+v", plan.Replace, plan)
	} else if plan.Reason != Paused {
		t.Errorf("ACJ-080: reason: got %q, want %q\n%+v", plan.Reason, Paused, plan)
	} else if plan.After != 0 {
		t.Errorf("ACJ-080: time to the next pass: got %v, want 0\n%+v", plan.After, plan)
	} else if len(plan.Delete) != 1 {
		t.Errorf("ACJ-080: number deleted: got %d, want 1\n%+v", len(plan.Delete), plan)
	} else if len(plan.Status.Active) != 1 {
		t.Errorf("ACJ-080: number active: got %d, want 1\n%+v", len(plan.Status.Active), plan)
	} else if plan.Dropped != 0 {
		t.Errorf("ACJ-080: dropped: got %d, want 0\n%+v", plan.Dropped, plan)
	}
	cronJob.Spec.Paused = nil
	if plan := Make(snapshot(cronJob, 5*time.Hour+minute, children...)); begins(plan) != "5h0m0s" {
		t.Errorf("ACJ-081: %s", begins(plan))
	}
	Deadline(30)(cronJob)
	if plan := Make(snapshot(cronJob, 5*time.Hour+minute, children...)); plan.Run != nil {
		t.Errorf("ACJ-081: run: got %+v, want nil\n%s", plan.Run, begins(plan))
	} else if got := told(plan); got != "MissSchedule" {
		t.Errorf("ACJ-081: told: got %q, want %q\n%s", got, "MissSchedule", begins(plan))
	}
	cronJob.Spec.StartingDeadlineSeconds = nil
	cronJob.DeletionTimestamp = At(0)
	plan = Make(snapshot(cronJob, 5*time.Hour, append(children, Made("Job", cronJob, 2*time.Hour, Held))...))
	if plan.Run != nil {
		t.Errorf("ACJ-042: run: got %+v, want nil\n%+v", plan.Run, plan)
	} else if plan.Reason != Deleting {
		t.Errorf("ACJ-042: reason: got %q, want %q\n%+v", plan.Reason, Deleting, plan)
	} else if plan.After != 0 {
		t.Errorf("ACJ-042: time to the next pass: got %v, want 0\n%+v", plan.After, plan)
	} else if len(plan.Delete)+len(plan.Replace) > 0 {
		t.Errorf("ACJ-042: number of deleted and replaced: got %d, want 0\n%+v", len(plan.Delete)+len(plan.Replace), plan)
	} else if len(plan.Status.Active) != 2 {
		t.Errorf("ACJ-042: number active: got %d, want 2\n%+v", len(plan.Status.Active), plan)
	} else if len(plan.Release) != 1 {
		t.Errorf("ACJ-042: number released: got %d, want 1\n%+v", len(plan.Release), plan)
	}
}

// What was stored before validation neither crashes nor loops.
func TestTemplatesThatAreNotOne(t *testing.T) {
	none := CronJob("Job", "* * * * *")
	none.Spec.Template = appsv1beta1.CronJobTemplate{}
	two := CronJob("Job", "* * * * *")
	two.Spec.Template.BroadcastJobTemplate = &appsv1beta1.BroadcastJobTemplateSpec{}
	for _, cronJob := range []*appsv1beta1.AdvancedCronJob{none, two} {
		if plan := Make(snapshot(cronJob, time.Hour)); plan.Run != nil {
			t.Errorf("run: got %+v, want nil\n%+v", plan.Run, plan)
		} else if plan.Reason != NoTemplate {
			t.Errorf("reason: got %q, want %q\n%+v", plan.Reason, NoTemplate, plan)
		} else if plan.After != 0 {
			t.Errorf("time to the next pass: got %v, want 0\n%+v", plan.After, plan)
		} else if got := told(plan); got != FailedCreate {
			t.Errorf("told: got %q, want %q\n%+v", got, FailedCreate, plan)
		} else if plan.Status.Type != "" {
			t.Errorf("type: got %q, want %q\n%+v", plan.Status.Type, "", plan)
		}
	}
}

// ACJ-122 (part): a kind that is not served makes its template alone unavailable; the run stays due.
func TestAKindThatIsNotServedLeavesTheRunDue(t *testing.T) {
	for _, kind := range Kinds {
		s := snapshot(CronJob(string(kind), "0 * * * *"), time.Hour)
		s.Absent = []Kind{BroadcastJob}
		plan := Make(s)
		if absent := plan.Reason == NotServed; absent != (kind == BroadcastJob) {
			t.Errorf("%s: reason NotServed: got %t, want %t\n%+v", kind, absent, kind == BroadcastJob, plan)
		} else if absent == (plan.Run != nil) {
			t.Errorf("%s: reason NotServed: got %t, want another value\n%+v", kind, absent, plan)
		} else if want := (told(plan) == FailedCreate); absent != want {
			t.Errorf("%s: reason NotServed: got %t, want %t\n%+v", kind, absent, want, plan)
		}
	}
}

// ACJ-090, ACJ-093: what history keeps, of each kind.
func TestHistory(t *testing.T) {
	for _, kind := range Kinds {
		cronJob := CronJob(string(kind), "@every 1000h")
		child := func(after time.Duration, changes ...func(client.Object)) client.Object {
			return Made(string(kind), cronJob, after, changes...)
		}
		named := func(name string) func(client.Object) { return func(o client.Object) { o.SetName(name); o.SetUID("u") } }
		children := []client.Object{
			child(minute, named("first-started-last"), Started(9*minute), Ended(true)), child(5*minute, named("b"), Started(5*minute), Ended(true)),
			child(2*minute, named("unstarted-b"), Ended(true)), child(2*minute, named("unstarted-a"), Ended(true)), child(3*minute, named("unstarted-later"), Ended(true)),
			child(4*minute, named("a"), Started(5*minute), Ended(true)),
			child(1*minute, named("failed-old"), Started(1*minute), Ended(false)), child(2*minute, named("failed-new"), Started(2*minute), Ended(false)),
			child(0, named("active"), Started(0)), child(0, named("going"), Ended(true), Going),
		}
		for limits, want := range map[[2]int32]string{
			{3, 1}:   "unstarted-a unstarted-b unstarted-later failed-old",
			{0, 0}:   "unstarted-a unstarted-b unstarted-later a b first-started-last failed-old failed-new",
			{5, 2}:   "unstarted-a",
			{1, 9}:   "unstarted-a unstarted-b unstarted-later a b",
			{-1, -1}: "",
		} {
			cronJob.Spec.SuccessfulJobsHistoryLimit, cronJob.Spec.FailedJobsHistoryLimit = &limits[0], &limits[1]
			if got := names(Make(snapshot(cronJob, time.Hour, children...)).Delete); got != want {
				t.Errorf("%s %v: got %q, want %q", kind, limits, got, want)
			}
		}
		cronJob.Spec.SuccessfulJobsHistoryLimit, cronJob.Spec.FailedJobsHistoryLimit = nil, nil
		if got := names(Make(snapshot(cronJob, time.Hour, children...)).Delete); got != "unstarted-a unstarted-b unstarted-later failed-old" {
			t.Errorf("%s without limits: %s", kind, got)
		}
	}
}

// ACJ-092 (part): a child is let go when the status has its run, not before.
func TestAChildIsLetGoWhenTheStatusHasItsRun(t *testing.T) {
	cronJob := CronJob("Job", "@every 1h", Last(30*minute))
	plan := Make(snapshot(cronJob, 50*minute, Made("Job", cronJob, 10*minute, Held), Made("Job", cronJob, 40*minute, Held, Going),
		Made("Job", cronJob, time.Hour, Held), Made("Job", cronJob, 20*minute)))
	if got := names(plan.Release); got != "nightly-1893499800 nightly-1893501600" || !plan.Status.LastScheduleTime.Equal(At(40*minute)) {
		t.Errorf("let go: got %q; last run: got %s, want %s", got, plan.Status.LastScheduleTime, At(40*minute))
	}
	next := []client.Object{Made("Job", cronJob, time.Hour, Held), Made("Job", cronJob, 90*24*time.Hour, Held), Made("Job", cronJob, 91*24*time.Hour, Held, Going)}
	if got := len(Make(snapshot(cronJob, 50*minute, next...)).Release); got != 1 {
		t.Errorf("of those that are to come %d are let go, not the one that is being deleted", got)
	}
	going := cronJob.DeepCopy()
	going.DeletionTimestamp = At(50 * minute)
	if got := len(Make(snapshot(going, 50*minute, next...)).Release); got != 3 {
		t.Errorf("of those of one that is being deleted, %d", got)
	}
	unreadable := Made("Job", cronJob, 0, Held, func(o client.Object) { o.SetAnnotations(nil) })
	if plan := Make(snapshot(cronJob, 50*minute, unreadable)); len(plan.Release) != 1 {
		t.Error("one without a time is held for ever")
	}
}

// ACJ-073 (part), ACJ-072 (part): the status after a run began, and after one that another object's name kept
// from beginning.
func TestStarted(t *testing.T) {
	cronJob := CronJob("Job", "0 * * * *", Policy("Replace"))
	old := Made("Job", cronJob, minute)
	plan := Make(snapshot(cronJob, time.Hour, old))
	created := ChildOf(Made("Job", cronJob, time.Hour))
	status := plan.Started(&created)
	if len(status.Active) != 1 || status.Active[0].Name != plan.Run.Name || !status.LastScheduleTime.Equal(At(time.Hour)) {
		t.Errorf("status of a run that began: got %+v, want %s active alone", status, plan.Run.Name)
	}
	if handled := plan.Started(nil); len(handled.Active) != 0 || !handled.LastScheduleTime.Equal(At(time.Hour)) {
		t.Errorf("status of a run that did not begin: got %+v, want nothing active and the run handled", handled)
	}
	if len(plan.Status.Active) != 1 {
		t.Error("the plan was changed")
	}
}

// ACJ-070: what a child gets, of each kind; fields that our types do not know reach it too.
func TestNewChild(t *testing.T) {
	for kind, spec := range map[Kind]map[string]any{
		Job: {"backoffLimit": int64(2), "future": map[string]any{"x": int64(1)}, "template": map[string]any{"spec": map[string]any{"restartPolicy": "Never",
			"containers": []any{map[string]any{"name": "c", "image": "i"}}}}},
		BroadcastJob: {"parallelism": "10%", "completionPolicy": map[string]any{"type": "Always"}, "template": map[string]any{"spec": map[string]any{
			"restartPolicy": "Never", "containers": []any{map[string]any{"name": "c", "image": "i", "future": int64(1)}}}}},
		ImageListPullJob: {"images": []any{"i"}, "completionPolicy": map[string]any{"type": "Always"}},
	} {
		cronJob := CronJob(string(kind), "0 13 * * *")
		plan := Make(snapshot(cronJob, 2*time.Hour))
		got, err := NewChild(cronJob, kind, plan.Run)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"apiVersion": map[bool]string{true: "batch/v1", false: "apps.kruise.io/v1beta1"}[kind == Job], "kind": string(kind), "spec": spec,
			"metadata": map[string]any{"namespace": "shop", "name": "nightly-1893502800", "labels": map[string]any{"team": "a"},
				"annotations": map[string]any{"note": "b", "apps.kruise.io/scheduled-at": "2030-01-01T13:00:00Z",
					"batch.kubernetes.io/cronjob-scheduled-timestamp": "2030-01-01T13:00:00Z"},
				"finalizers": []any{"apps.kruise.io/unrecorded-run"},
				"ownerReferences": []any{map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "AdvancedCronJob", "name": "nightly", "uid": "cron",
					"controller": true, "blockOwnerDeletion": true}}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", kind, diff)
		}
	}
	broken := CronJob("Job", "* * * * *")
	if err := broken.Spec.Template.JobTemplate.UnmarshalJSON([]byte(`["no object"]`)); err != nil {
		t.Fatal(err)
	}
	if _, err := NewChild(broken, Job, &Run{}); err == nil {
		t.Error("a template that is no object")
	}
}

// ACJ-071: names are those of the reference where they fit, at most 63 characters, different for different
// runs and objects, and end as the time does.
func TestNamesOfChildrenAreThoseOfTheReference(t *testing.T) {
	at := Noon
	if got := NameOf("nightly", at); got != "nightly-1893499200" {
		t.Errorf(`name of the run of nightly: got %q, want %q`, got, "nightly-1893499200")
	}
	seen := map[string]bool{}
	for length := 1; length <= 63; length++ {
		base := strings.Repeat("a", length)
		for _, name := range []string{NameOf(base, at), NameOf(base, at.Add(minute)), NameOf(base[1:]+"b", at)} {
			if len(name) > 63 {
				t.Errorf("%d: length of the name: got %d, want at most 63", length, len(name))
			}
			if seen[name] {
				t.Errorf("%d: the name was seen: got true, want false", length)
			}
			if !strings.Contains(name, "-18934992") {
				t.Errorf("%d: name: got %q, want it to contain %q", length, name, "-18934992")
			}
			seen[name] = true
		}
		if got := NameOf(base, at); length <= 52 && got != base+"-1893499200" {
			t.Errorf("%d: name of the run: got %q, want %q", length, got, base+"-1893499200")
		}
		if got := len(NameOf(base, at)); length > 52 && got != 63 {
			t.Errorf("%d: length of the name: got %d, want 63\n%s", length, got, NameOf(base, at))
		}
	}
	got := fmt.Sprint(NameOf(strings.Repeat("a", 63), at))
	if !strings.HasPrefix(got, strings.Repeat("a", 43)+"-") {
		t.Errorf(`name of a run with a long name: got %q, want it to begin with %q`, got, strings.Repeat("a", 43)+"-")
	}
	if !strings.HasSuffix(got, "-1893499200") {
		t.Errorf(`name of a run with a long name: got %q, want it to end with %q`, got, "-1893499200")
	}
}

// ACJ-030: a child is known by the UID of its controller, whatever version the reference names.
func TestAChildIsKnownByTheUIDOfItsController(t *testing.T) {
	for version, want := range map[string]string{"apps.kruise.io/v1alpha1": "u", "apps.kruise.io/v1beta1": "u", "apps.kruise.io/v9": "u", "batch/v1": ""} {
		child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "AdvancedCronJob", UID: "other", APIVersion: version},
			{Kind: "AdvancedCronJob", Name: "whatever", UID: "u", APIVersion: version, Controller: new(true)}}}}
		if got := OwnerOf(child); string(got) != want {
			t.Errorf("%s: owner of the child: got %q, want %q", version, string(got), want)
		}
	}
	child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "CronJob", UID: "u", APIVersion: "apps.kruise.io/v1", Controller: new(true)}}}}
	if got := OwnerOf(child); got != "" {
		t.Errorf("of another kind, or nobody's: owner of the child: got %q, want %q", got, "")
	}
	if got := OwnerOf(&batchv1.Job{}); got != "" {
		t.Errorf("of another kind, or nobody's: owner of a Job without one: got %q, want %q", got, "")
	}
}
