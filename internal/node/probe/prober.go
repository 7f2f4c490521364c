package probe

import (
	"strings"
	"time"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// Outcome is how one attempt ended.
type Outcome string

// The outcomes of attempts. None says nothing about the container: what carries out attempts has failed.
const (
	Success Outcome = "success"
	Failure Outcome = "failure"
	None    Outcome = "error"
)

// Attempt is one attempt of a probe.
type Attempt struct {
	Outcome Outcome
	// Message is what the container answered.
	Message string
}

// Result is what is known of a probe.
type Result struct {
	// State is empty as long as there is nothing to be reported.
	State   appsv1alpha1.ProbeState
	Message string
	// Probed is when State was seen last, and Changed since when it holds.
	Probed, Changed time.Time
}

// Prober turns the attempts of one probe into its result, as kubelet does.
type Prober struct {
	Definition
	Result
	// container is the ID of the container that the result is of; empty if none was met yet. started is when
	// it started.
	container string
	started   time.Time
	// last is the outcome of the last attempt, and row how many in a row had it.
	last Outcome
	row  int32
	// resumed: the result is of a former process, which may have met another container.
	resumed bool
	// stopped: the container was met, and did not run.
	stopped bool
}

// NewProber returns a prober without result.
func NewProber(d Definition, now time.Time) *Prober {
	p := &Prober{Definition: d}
	p.refuse(now)
	return p
}

// Resume continues with the result of a former process (PPM-082).
func (p *Prober) Resume(state appsv1alpha1.ContainerProbeState) {
	if p.Refused == "" {
		p.Result = Result{
			State:   state.State,
			Message: state.Message,
			Probed:  state.LastProbeTime.Time,
			Changed: state.LastTransitionTime.Time,
		}
		p.resumed = true
	}
}

// Define takes over a changed definition. The result stays if no more than numbers or the address have
// changed (PPM-081): a pod that has another address has other containers, too.
func (p *Prober) Define(d Definition, now time.Time) {
	same := p.sameTarget(&d)
	if p.Container != d.Container {
		p.container = ""
	}
	p.Definition = d
	if !same {
		p.reset(now)
		p.refuse(now)
	}
}

// refuse reports why the probe is not carried out. That says nothing about the container.
func (p *Prober) refuse(now time.Time) {
	if p.Refused != "" {
		p.set(appsv1alpha1.ProbeUnknown, p.Refused, now)
	}
}

// reset forgets what was seen. What has not been reported yet need not be reported as unknown.
func (p *Prober) reset(now time.Time) {
	p.last, p.row = "", 0
	if p.State != "" {
		p.set(appsv1alpha1.ProbeUnknown, "", now)
	}
}

func (p *Prober) set(state appsv1alpha1.ProbeState, message string, now time.Time) {
	if p.State != state {
		p.Changed = now
	}
	// What is no text would be replaced by the API server, which would show something else for ever.
	p.State, p.Message, p.Probed = state, clip(strings.ToValidUTF8(message, "\uFFFD"), mostMessage), now
}

// Met is the container of a pod that has the name of the prober's, as the runtime tells.
type Met struct {
	// ID is empty if there is no container.
	ID      string
	Running bool
	// Started is when it started; zero if it has not been asked for.
	Started time.Time
	// Starting: its startup probe has not succeeded yet.
	Starting bool
}

// Meet takes note of the container, and tells whether an attempt is due. Another container has no result yet
// (PPM-084), one that does not run has failed (PPM-085), and one that starts is left alone (PPM-086,
// PPM-087). A container may be met before it runs, and has no result when it does. That one does not run is
// no failure of its liveness probe: kubelet looks after it.
func (p *Prober) Meet(c Met, now time.Time) bool {
	if c.ID == "" || p.Refused != "" { // PPM-083
		return false
	}

	if p.container != c.ID {
		// Whatever a former process has seen, it was of a container that had started by then, and no attempt
		// is made in the second of its start.
		if !p.resumed || c.Started.After(p.Probed) {
			p.reset(now)
		}
		p.container, p.started, p.resumed = c.ID, c.Started, false
	}
	if !c.Running {
		p.last, p.row, p.stopped = "", 0, true
		state := appsv1alpha1.ProbeFailed
		if p.liveness() {
			state = appsv1alpha1.ProbeUnknown
		}
		p.set(state, "container "+p.Container+" is not running", now)
		return false
	}

	if p.stopped || c.Starting {
		p.reset(now)
	}
	p.stopped = false
	return !c.Starting && !now.Before(p.started.Add(p.InitialDelay))
}

// Take takes the outcome of an attempt at a container (PPM-091). It is of no use if another container was met
// meanwhile. What could not be carried out changes no result; where there is none, it is told why.
func (p *Prober) Take(a Attempt, container string, now time.Time) {
	if p.container != container || p.Refused != "" {
		return
	}
	if a.Outcome == None {
		if p.State == "" || p.State == appsv1alpha1.ProbeUnknown {
			p.set(appsv1alpha1.ProbeUnknown, notCarriedOut+a.Message, now)
		}
		return
	}

	if a.Outcome != p.last {
		p.last, p.row = a.Outcome, 0
	}
	p.row = min(p.row+1, 1<<20)

	switch {
	case a.Outcome == Success && p.row >= p.SuccessThreshold:
		p.set(appsv1alpha1.ProbeSucceeded, a.Message, now)
	case a.Outcome == Failure && p.row >= p.FailureThreshold:
		p.set(appsv1alpha1.ProbeFailed, a.Message, now)
	}
}

// notCarriedOut is how messages of attempts begin that say nothing about the container.
const notCarriedOut = "the probe cannot be carried out: "

// mostMessage is how long messages are at most, in bytes (PPM-092).
const mostMessage = 1024
