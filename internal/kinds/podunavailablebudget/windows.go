package podunavailablebudget

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // images have no time zones of their own

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Bounds of windows.
const (
	mostWindows   = 20
	leastDuration = time.Minute
	mostDuration  = 7 * 24 * time.Hour
	mostReason    = 200
)

// Window is a time in which other numbers hold than those of the spec (PUB-140). It is an element of
// annotation pub.kruise.io/windows.
type Window struct {
	// Schedule is when it opens, in the syntax of cron with five fields; TimeZone is where, as
	// "Europe/Berlin", UTC if it is empty.
	Schedule string `json:"schedule"`
	TimeZone string `json:"timeZone,omitempty"`
	// Duration is how long it stays open.
	Duration metav1.Duration `json:"duration"`
	// MaxUnavailable or MinAvailable hold while it is open.
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	MinAvailable   *intstr.IntOrString `json:"minAvailable,omitempty"`
	// Reason is told with what is refused.
	Reason string `json:"reason,omitempty"`

	opens cron.Schedule
}

// Windows reads those of a budget, in their order. An annotation that cannot be read is none.
func Windows(budget *policyv1beta1.PodUnavailableBudget) []Window {
	windows, errs := parseWindows(budget)
	if len(errs) > 0 {
		return nil
	}
	return windows
}

// parseWindows reads the annotation, with everything that is wrong with it.
func parseWindows(budget *policyv1beta1.PodUnavailableBudget) ([]Window, field.ErrorList) {
	text, at := budget.Annotations[pub.BudgetWindows],
		field.NewPath("metadata", "annotations").Key(pub.BudgetWindows)
	if text == "" {
		return nil, nil
	}

	var windows []Window
	unknown, err := kjson.UnmarshalStrict([]byte(text), &windows)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return nil, field.ErrorList{field.Invalid(at, text,
			"must be a list of windows as JSON: "+err.Error())}
	}
	if len(windows) > mostWindows {
		return nil, field.ErrorList{field.TooMany(at, len(windows), mostWindows)}
	}

	var errs field.ErrorList
	for i := range windows {
		errs = append(errs, windows[i].complete(at.Index(i))...)
	}

	return windows, errs
}

// complete compiles a window, or says what is wrong with it.
func (w *Window) complete(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil || w.TimeZone == "Local" {
		errs = append(errs, field.Invalid(at.Child("timeZone"), w.TimeZone,
			"must be a time zone such as Europe/Berlin"))
	}
	if strings.Contains(w.Schedule, "TZ") { // the parser panics if nothing follows it
		errs = append(errs, field.Invalid(at.Child("schedule"), w.Schedule,
			"must not name a time zone: timeZone does"))
	} else {
		schedule, _ := cron.ParseStandard(w.Schedule)
		if fields, ok := schedule.(*cron.SpecSchedule); ok { // others are intervals
			fields.Location, w.opens = zone, fields
		} else {
			errs = append(errs, field.Invalid(at.Child("schedule"), w.Schedule,
				"must be a schedule of cron with five fields"))
		}
	}
	if len(w.Reason) > mostReason {
		errs = append(errs, field.TooLong(at.Child("reason"), "", mostReason))
	}
	if d := w.Duration.Duration; d < leastDuration || d > mostDuration {
		errs = append(errs, field.Invalid(at.Child("duration"), d.String(),
			fmt.Sprintf("must be from %s to %s", leastDuration, mostDuration)))
	}
	spec := policyv1beta1.PodUnavailableBudgetSpec{}
	spec.MaxUnavailable, spec.MinAvailable = w.MaxUnavailable, w.MinAvailable
	return append(errs, validateNumbers(&spec, at)...)
}

// Open tells whether the window is open, and until or from when that holds.
func (w *Window) Open(now time.Time) (open bool, change time.Time) {
	// the first time at which a window opens that is not over
	opens := w.opens.Next(now.Add(-w.Duration.Duration))
	if opens.IsZero() {
		return false, time.Time{}
	}
	if opens.After(now) {
		return false, opens
	}
	return true, opens.Add(w.Duration.Duration)
}

// Number is how many pods must stay in service of so many expected ones now, by the open window that keeps
// the most, or else by the spec. reason is that of the window; until is when another number may hold, zero if
// that is never.
func (r *Rules) Number(
	total int32, now time.Time,
) (desired int32, reason string, until time.Time, err error) {
	desired, err = Desired(&r.Budget.Spec, total)
	within := false
	for i := range r.windows {
		w := &r.windows[i]
		open, change := w.Open(now)
		if !change.IsZero() && (until.IsZero() || change.Before(until)) {
			until = change
		}
		if !open {
			continue
		}
		spec := policyv1beta1.PodUnavailableBudgetSpec{}
		spec.MaxUnavailable, spec.MinAvailable = w.MaxUnavailable, w.MinAvailable
		number, errWindow := Desired(&spec, total)
		if !within || number > desired || errWindow != nil {
			desired, reason, err = number, w.Reason, errWindow
		}
		within = true
	}

	return desired, reason, until, err
}
