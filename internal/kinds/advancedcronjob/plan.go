package advancedcronjob

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/schedule"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Snapshot is everything that a plan is made from.
type Snapshot struct {
	CronJob *appsv1beta1.AdvancedCronJob
	// Children are the children that the AdvancedCronJob controls.
	Children []Child
	// Absent are the kinds that the cluster does not serve (ACJ-122).
	Absent []Kind
	Now    time.Time
	// Zone is the time zone of the manager, and UTC if it is nil.
	Zone *time.Location
	// Counted is the time up to which left out runs have been counted.
	Counted time.Time
}

// Reason is why a run begins now, or why none does.
type Reason string

// Reasons of plans.
const (
	Deleting   Reason = "Deleting"
	Paused     Reason = "Paused"
	NoTemplate Reason = "NoTemplate"
	NotServed  Reason = "NotServed"
	NoSchedule Reason = "UnparseableSchedule"
	NoZone     Reason = "UnknownTimeZone"
	// NotYet means that the next time of the schedule has not come, or that there is none.
	NotYet Reason = "NotYet"
	// AlreadyActive means that a run is due and waits for the end of another one (ACJ-061).
	AlreadyActive Reason = "JobAlreadyActive"
	// Due means that a run begins.
	Due Reason = "Due"
)

// Reasons of events that are recorded once (ACJ-103).
const (
	MissSchedule       = "MissSchedule"
	TooManyMissedTimes = "TooManyMissedTimes"
	FailedCreate       = "FailedCreate"
)

// Run is a run that begins.
type Run struct {
	Time time.Time
	// Name is the name of its child.
	Name string
}

// Note is a message to users, which is sent once for each value of About.
type Note struct{ Type, Reason, Message, About string }

// Plan is what to do for an AdvancedCronJob, in the order of its fields (ACJ-041).
type Plan struct {
	// Status is the status to write before the run begins.
	Status appsv1beta1.AdvancedCronJobStatus
	// Finished are children that have ended since the status was written.
	Finished []Child
	// Release are children whose finalizer can be removed, because the status has their run.
	Release []Child
	// Delete are finished children beyond the history limits.
	Delete []Child
	// Notes are the messages to send.
	Notes []Note
	// Dropped is how many times were left out since the last count. Counted is the time up to which they are
	// counted now.
	Dropped int
	Counted time.Time
	// Replace are active children to be deleted before the run begins. Run is the run that begins, or nil.
	Replace []Child
	Run     *Run
	Kind    Kind
	// Reason and Message say why a run begins or why none does.
	Reason  Reason
	Message string
	// Next is the next time of the schedule. It is zero if none is known.
	Next time.Time
	// After is when to look again. 0 means not before something happens.
	After time.Duration
}

// manyMissed is the number of missed times above which users are warned. mostDropped is the number of left
// out times above which they are not counted. mostActive is how many children the status lists at most,
// because the size of an object is limited.
const (
	manyMissed  = 100
	mostDropped = 1000
	mostActive  = 1000
)

// planner makes one plan. in is what it decides from, and out is what it decides.
type planner struct {
	in                        Snapshot
	out                       *Plan
	active, succeeded, failed []Child
}

// Make returns what to do for an AdvancedCronJob.
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

// waits records why no run begins.
func (p *planner) waits(reason Reason, format string, args ...any) {
	p.out.Reason, p.out.Message = reason, fmt.Sprintf(format, args...)
}

// note adds a message to users, which is sent again whenever about changes.
func (p *planner) note(eventType, reason, message, about string) {
	p.out.Notes = append(p.out.Notes, Note{eventType, reason, message, about})
}

// classify sorts the children into lists by phase, each in the order of the runs.
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

// status computes the status, and what follows once it is stored.
func (p *planner) status() {
	old := &p.in.CronJob.Status
	p.out.Status.Type, p.out.Status.LastScheduleTime = string(p.out.Kind), old.LastScheduleTime
	for _, child := range p.in.Children {
		// Ignore times in the future. Whoever may write Jobs may set them, and they do not show what was
		// done.
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
		// Keep the reference as it is in the status, even if the child has changed.
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

// farAhead is how far in the future a nominal time must be to show that no manager set it, however wrong its
// clock was.
const farAhead = time.Hour

// nobodyAsks reports whether the run of a child need not be recorded, because no run begins any more or
// because somebody else made up the child. Otherwise whoever deletes the child, or its AdvancedCronJob in the
// foreground, would have to wait until its time has come.
func (p *planner) nobodyAsks(child Child) bool {
	return p.in.CronJob.DeletionTimestamp != nil ||
		child.Object.GetDeletionTimestamp() != nil && child.Nominal.After(p.in.Now.Add(farAhead))
}

// lastTime returns the time of the latest run in a status, or zero if there is none.
func lastTime(status *appsv1beta1.AdvancedCronJobStatus) time.Time {
	if status.LastScheduleTime == nil {
		return time.Time{}
	}
	return status.LastScheduleTime.Time
}

// handled records the time of a run. The recorded time never goes back.
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

// Started returns the status once the child of the run exists (ACJ-073). A nil child means that another
// object has its name, and the run counts as handled (ACJ-072).
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

// history finds the finished children beyond the history limits.
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
		if limit < 0 { // stored without validation; do not delete what nobody asked to delete
			continue
		}
		for _, child := range of.children[:max(len(of.children)-int(limit), 0)] {
			if !child.going() {
				p.out.Delete = append(p.out.Delete, child)
			}
		}
	}
}

// schedule finds the run that begins, or records why none does.
func (p *planner) schedule(templates []Kind) {
	spec := &p.in.CronJob.Spec
	if spec.Paused != nil && *spec.Paused {
		p.waits(Paused, "it is paused: no run begins")
		return
	}
	if len(templates) != 1 {
		p.waits(NoTemplate, "spec.template has %s, and must have exactly one",
			wording.Count(len(templates), "template"))
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

// cut limits how much of a user's text is repeated.
func cut(text string) string {
	if len(text) > 100 {
		return text[:100] + "..."
	}
	return text
}

// due finds the time that is due, if there is one.
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

// left counts the times that are left out, and notes those that the starting deadline leaves out.
func (p *planner) left(times schedule.Schedule, anchor, since, gone time.Time) {
	p.out.Counted = later(p.in.Counted, gone)
	p.out.Dropped = times.Count(anchor, later(p.in.Counted, anchor), gone, mostDropped)
	if first, ok := times.Next(anchor, anchor); since.After(anchor) && ok && !first.After(since) {
		p.note(corev1.EventTypeWarning, MissSchedule,
			fmt.Sprintf(
				"the run of %s, and later ones up to now, are left out that could not begin within startingDeadlineSeconds (%d)",
				first.Format(time.RFC3339), *p.in.CronJob.Spec.StartingDeadlineSeconds),
			anchor.String())
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// begin begins a run unless others prevent it.
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
