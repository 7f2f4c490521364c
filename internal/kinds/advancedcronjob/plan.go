package advancedcronjob

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/schedule"
)

// Snapshot is all that a plan is made from.
type Snapshot struct {
	CronJob *appsv1beta1.AdvancedCronJob
	// Children are those that it controls.
	Children []Child
	// Absent are kinds that the cluster does not serve (ACJ-122).
	Absent []Kind
	Now    time.Time
	// Zone is that of the manager; UTC if it is nil.
	Zone *time.Location
	// Counted is until when left out runs were counted.
	Counted time.Time
}

// Reason is why no run begins now, or why one does.
type Reason string

// Reasons of plans.
const (
	Deleting   Reason = "Deleting"
	Paused     Reason = "Paused"
	NoTemplate Reason = "NoTemplate"
	NotServed  Reason = "NotServed"
	NoSchedule Reason = "UnparseableSchedule"
	NoZone     Reason = "UnknownTimeZone"
	// NotYet: the next time of the schedule has not come, or there is none.
	NotYet Reason = "NotYet"
	// AlreadyActive: a run is due and waits for the end of another one (ACJ-061).
	AlreadyActive Reason = "JobAlreadyActive"
	// Due: a run begins.
	Due Reason = "Due"
)

// Reasons of events that are told once (ACJ-103).
const (
	MissSchedule       = "MissSchedule"
	TooManyMissedTimes = "TooManyMissedTimes"
	FailedCreate       = "FailedCreate"
)

// Run is one that begins.
type Run struct {
	Time time.Time
	// Name is that of its child.
	Name string
}

// Note is what users are to be told, once for what it is about.
type Note struct{ Type, Reason, Message, About string }

// Plan is what is to be done about an AdvancedCronJob, in the order of its fields (ACJ-041).
type Plan struct {
	// Status is as it should be before the run.
	Status appsv1beta1.AdvancedCronJobStatus
	// Finished are children that have ended since the status was written.
	Finished []Child
	// Release are children whose run the status has: they may go.
	Release []Child
	// Delete are finished children beyond the history limits.
	Delete []Child
	// Notes are to be told.
	Notes []Note
	// Dropped is how many times were left out since they were counted last, and Counted until when they are
	// counted now.
	Dropped int
	Counted time.Time
	// Replace are active children that end before the run begins, Run is the one that begins, if any.
	Replace []Child
	Run     *Run
	Kind    Kind
	// Reason and Message say why a run begins, or why none does.
	Reason  Reason
	Message string
	// Next is the next time of the schedule; zero if none is known.
	Next time.Time
	// After is when to look again; 0 is not before something happens.
	After time.Duration
}

// Bounds: more missed times than these are told of (ACJ-054); of more left out times it is not counted how
// many there are; the status lists no more children than these, since an object has a size.
const (
	manyMissed  = 100
	mostDropped = 1000
	mostActive  = 1000
)

// planner makes one plan: in is what it decides from, out what it decides.
type planner struct {
	in                        Snapshot
	out                       *Plan
	active, succeeded, failed []Child
}

// Make decides what to do about an AdvancedCronJob.
func Make(s Snapshot) *Plan {
	p := planner{in: s, out: &Plan{Counted: s.Counted}}
	templates := Templates(&s.CronJob.Spec.Template)
	if len(templates) == 1 {
		p.out.Kind = templates[0]
	}
	p.classify()
	p.status()
	if s.CronJob.DeletionTimestamp != nil {
		p.waits(Deleting, "it is being deleted: no run begins")
		return p.out
	}

	p.history()
	p.schedule(templates)
	return p.out
}

// waits says why no run begins.
func (p *planner) waits(reason Reason, format string, args ...any) {
	p.out.Reason, p.out.Message = reason, fmt.Sprintf(format, args...)
}

// note has users told something, as often as it is about something else.
func (p *planner) note(eventType, reason, message, about string) {
	p.out.Notes = append(p.out.Notes, Note{eventType, reason, message, about})
}

// classify sorts the children, each list in the order of its runs.
func (p *planner) classify() {
	for _, child := range p.in.Children {
		switch child.Phase {
		case Active:
			p.active = append(p.active, child)
		case Succeeded:
			p.succeeded = append(p.succeeded, child)
		case Failed:
			p.failed = append(p.failed, child)
		}
	}

	slices.SortFunc(p.active, byTime)
	for _, list := range [][]Child{p.succeeded, p.failed} {
		slices.SortFunc(list, func(a, b Child) int {
			if order := a.Started.Compare(b.Started); order != 0 {
				return order
			}
			return byTime(a, b)
		})
	}
}

func byTime(a, b Child) int {
	if order := a.Nominal.Compare(b.Nominal); order != 0 {
		return order
	}
	if order := strings.Compare(a.Object.GetName(), b.Object.GetName()); order != 0 {
		return order
	}
	return strings.Compare(string(a.Kind), string(b.Kind))
}

// status computes the status, and what follows from its being stored.
func (p *planner) status() {
	old := &p.in.CronJob.Status
	p.out.Status.Type, p.out.Status.LastScheduleTime = string(p.out.Kind), old.LastScheduleTime
	for _, child := range p.in.Children {
		// A time that has not come says nothing about what was done: anybody may write it who may write Jobs.
		if !child.Nominal.After(p.in.Now) {
			handled(&p.out.Status, child.Nominal)
		}
	}

	known := map[string]int{}
	for i := range old.Active {
		known[string(old.Active[i].UID)] = i
	}

	listed := p.active[max(len(p.active)-mostActive, 0):]
	for _, child := range listed {
		// as it was noted: what changes in a child does not change it
		if i, ok := known[string(child.Object.GetUID())]; ok {
			p.out.Status.Active = append(p.out.Status.Active, old.Active[i])
		} else {
			p.out.Status.Active = append(p.out.Status.Active, referenceTo(child))
		}
	}

	for _, list := range [][]Child{p.succeeded, p.failed} {
		for _, child := range list {
			if _, active := known[string(child.Object.GetUID())]; active {
				p.out.Finished = append(p.out.Finished, child)
			}
		}
	}

	for _, child := range p.in.Children {
		if child.Held() && (child.Nominal.IsZero() || !child.Nominal.After(lastTime(&p.out.Status)) ||
			p.nobodyAsks(child)) {
			p.out.Release = append(p.out.Release, child)
		}
	}
}

// farAhead is a nominal time that no manager gave a child, however its clock goes.
const farAhead = time.Hour

// nobodyAsks tells of a child whose run is not recorded that it need not be: no run begins any more, or
// somebody else made it up. Else who deletes it, or its AdvancedCronJob in the foreground, waits until the
// time has come.
func (p *planner) nobodyAsks(child Child) bool {
	return p.in.CronJob.DeletionTimestamp != nil ||
		child.Object.GetDeletionTimestamp() != nil && child.Nominal.After(p.in.Now.Add(farAhead))
}

// lastTime is the time of the latest run that a status has; zero if there is none.
func lastTime(status *appsv1beta1.AdvancedCronJobStatus) time.Time {
	if status.LastScheduleTime == nil {
		return time.Time{}
	}
	return status.LastScheduleTime.Time
}

// handled notes the time of a run; it never goes back.
func handled(status *appsv1beta1.AdvancedCronJobStatus, at time.Time) {
	if at.After(lastTime(status)) {
		status.LastScheduleTime = &metav1.Time{Time: at}
	}
}

func referenceTo(child Child) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: child.Kind.APIVersion(), Kind: string(child.Kind),
		Namespace: child.Object.GetNamespace(), Name: child.Object.GetName(), UID: child.Object.GetUID(),
		ResourceVersion: child.Object.GetResourceVersion()}
}

// Started is the status once the child of the run is there (ACJ-073). Without a child, another object has its
// name, and the run counts as handled (ACJ-072).
func (p *Plan) Started(child *Child) appsv1beta1.AdvancedCronJobStatus {
	status := *p.Status.DeepCopy()
	handled(&status, p.Run.Time)
	status.Active = slices.DeleteFunc(status.Active, func(listed corev1.ObjectReference) bool {
		return slices.ContainsFunc(p.Replace, func(c Child) bool {
			return c.Object.GetUID() == listed.UID && len(c.Object.GetFinalizers()) == 0
		})
	})
	if child != nil && child.Phase == Active {
		status.Active = append(status.Active, referenceTo(*child))
		status.Active = status.Active[max(len(status.Active)-mostActive, 0):]
	}
	return status
}

// history finds what it has too much of (ACJ-090 to ACJ-093).
func (p *planner) history() {
	for _, of := range []struct {
		children []Child
		limit    *int32
		standard int32
	}{{p.succeeded, p.in.CronJob.Spec.SuccessfulJobsHistoryLimit, successfulLimit},
		{p.failed, p.in.CronJob.Spec.FailedJobsHistoryLimit, failedLimit}} {
		limit := of.standard
		if of.limit != nil {
			limit = *of.limit
		}
		if limit < 0 { // stored before validation: nothing is deleted that nobody asked for
			continue
		}
		for _, child := range of.children[:max(len(of.children)-int(limit), 0)] {
			if !child.going() {
				p.out.Delete = append(p.out.Delete, child)
			}
		}
	}
}

// schedule finds the run that begins, or says why none does.
func (p *planner) schedule(templates []Kind) {
	spec := &p.in.CronJob.Spec
	if spec.Paused != nil && *spec.Paused {
		p.waits(Paused, "it is paused: no run begins")
		return
	}
	if len(templates) != 1 {
		p.waits(NoTemplate, "spec.template has %s, and must have exactly one",
			plural.Of(len(templates), "template"))
		p.note(corev1.EventTypeWarning, FailedCreate, p.out.Message, string(NoTemplate))
		return
	}

	times, zone, err := schedule.Parse(spec.Schedule)
	if err != nil {
		p.waits(NoSchedule, "spec.schedule %q: %v", cut(spec.Schedule), err)
		p.note(corev1.EventTypeWarning, string(NoSchedule),
			p.out.Message+"; no run begins until it is changed", p.out.Message)
		return
	}
	if zone == "" && spec.TimeZone != nil {
		zone = *spec.TimeZone
	}
	if location := p.in.Zone; zone == "" && (spec.TimeZone == nil) {
		if location == nil {
			location = time.UTC
		}
		times = times.In(location)
	} else if location, err := schedule.Zone(zone); err != nil {
		p.waits(NoZone, "time zone %s", err)
		p.note(corev1.EventTypeWarning, string(NoZone), p.out.Message+"; no run begins until it is changed",
			p.out.Message)
		return
	} else {
		times = times.In(location)
	}
	p.due(times)
}

// cut bounds what is repeated of what users write.
func cut(text string) string {
	if len(text) > 100 {
		return text[:100] + "..."
	}
	return text
}

// due finds the time that is due, if any (ACJ-051 to ACJ-057).
func (p *planner) due(times schedule.Schedule) {
	anchor := lastTime(&p.out.Status)
	if anchor.IsZero() {
		anchor = p.in.CronJob.CreationTimestamp.Time
	}
	since := anchor
	if deadline := p.in.CronJob.Spec.StartingDeadlineSeconds; deadline != nil &&
		float64(*deadline) < p.in.Now.Sub(anchor).Seconds() {
		earliest := p.in.Now.Truncate(time.Second).Add(-time.Duration(max(*deadline, 0)) * time.Second)
		if before := earliest.Add(-time.Nanosecond); before.After(since) {
			since = before
		}
	}
	if next, ok := times.Next(anchor, later(p.in.Now, anchor)); ok {
		p.out.Next, p.out.After = next, next.Sub(p.in.Now)
	}
	latest, ok := times.Latest(anchor, since, p.in.Now)
	gone := since
	if ok {
		gone = latest.Add(-time.Nanosecond)
	}
	p.left(times, anchor, since, gone)
	if !ok {
		p.out.Reason, p.out.Message = NotYet, "the schedule has no time any more"
		if !p.out.Next.IsZero() {
			p.out.Message = "the next run begins at " + p.out.Next.Format(time.RFC3339)
		}
		return
	}
	if n := times.Count(anchor, since, p.in.Now, manyMissed+1); n > manyMissed {
		p.note(corev1.EventTypeWarning, TooManyMissedTimes,
			fmt.Sprintf(
				"more than %d times of the schedule have passed since %s: the latest of them, %s, runs",
				manyMissed, anchor.UTC().Format(time.RFC3339), latest.Format(time.RFC3339)),
			anchor.String())
	}
	p.begin(&Run{Time: latest, Name: NameOf(p.in.CronJob.Name, latest)})
}

// left counts times that are left out, and tells of those that the starting deadline leaves out.
func (p *planner) left(times schedule.Schedule, anchor, since, gone time.Time) {
	p.out.Counted = later(p.in.Counted, gone)
	p.out.Dropped = times.Count(anchor, later(p.in.Counted, anchor), gone, mostDropped)
	if first, ok := times.Next(anchor, anchor); since.After(anchor) && ok && !first.After(since) {
		p.note(corev1.EventTypeWarning, MissSchedule,
			fmt.Sprintf(
				"the run of %s, and later ones up to now, are left out that could not begin within startingDeadlineSeconds (%d)", first.Format(time.RFC3339), *p.in.CronJob.Spec.StartingDeadlineSeconds),
			anchor.String())
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// begin begins a run, as far as others let it (ACJ-060 to ACJ-062).
func (p *planner) begin(run *Run) {
	at := run.Time.Format(time.RFC3339)
	if slices.Contains(p.in.Absent, p.out.Kind) {
		p.waits(NotServed, "the run of %s waits: the cluster does not serve %ss of %s", at, p.out.Kind,
			p.out.Kind.APIVersion())
		p.note(corev1.EventTypeWarning, FailedCreate, p.out.Message, string(NotServed))
		return
	}

	switch {
	case len(p.active) == 0:
	case p.in.CronJob.Spec.ConcurrencyPolicy == appsv1beta1.ConcurrencyForbid:
		first := p.active[0]
		p.waits(AlreadyActive, "the run of %s waits for the end of %s, since concurrencyPolicy is Forbid",
			at, first)
		p.note(corev1.EventTypeNormal, string(AlreadyActive), p.out.Message, string(first.Object.GetUID()))
		return
	case p.in.CronJob.Spec.ConcurrencyPolicy == appsv1beta1.ConcurrencyReplace:
		for _, child := range p.active {
			if !child.going() {
				p.out.Replace = append(p.out.Replace, child)
			}
		}
	}
	p.out.Run = run
	p.waits(Due, "the run of %s begins", at)
}
