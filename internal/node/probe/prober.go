package probe

import (
	"strings"
	"time"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// Outcome is the outcome of one attempt.
type Outcome string

// The outcomes of attempts. None means that the attempt could not be made, which says nothing about the
// container.
const (
	Success Outcome = "success"
	Failure Outcome = "failure"
	None    Outcome = "error"
)

// Attempt is one attempt of a probe.
type Attempt struct {
	Outcome Outcome
	// Message is the response of the container.
	Message string
}

// Result is what is known about the target of a probe.
type Result struct {
	// State is empty as long as there is nothing to report.
	State   appsv1alpha1.ProbeState
	Message string
	// Probed is when State was last observed, and Changed is when it last changed.
	Probed, Changed time.Time
}

// Prober computes the result of one probe from its attempts, in the same way as kubelet.
type Prober struct {
	Definition
	Result
	// target is the targetHash of the definition.
	target string
	// container is the ID of the container that the result is about, or empty if none is known yet. started
	// is the time when it started.
	container string
	started   time.Time
	// last is the outcome of the last attempt, and row how many consecutive attempts had it.
	last Outcome
	row  int32
	// resumed means that the result is from a previous process, which may have observed another container.
	resumed bool
	// stopped means that the container was observed while it was not running.
	stopped bool
}

// NewProber returns a Prober without a result.
func NewProber(d Definition, now time.Time) *Prober {
	p := &Prober{Definition: d, target: d.targetHash()}
	p.refuse(now)
	return p
}

// Resume continues with the result of a previous process (PPM-082), unless it is about another target. Earlier releases
// did not record the target.
func (p *Prober) Resume(state appsv1alpha1.ContainerProbeState, now time.Time) {
	if p.Refused == "" {
		p.Result = Result{
			State:   state.State,
			Message: state.Message,
			Probed:  state.LastProbeTime.Time,
			Changed: state.LastTransitionTime.Time,
		}
		p.resumed = true
		if state.Target != "" && state.Target != p.target {
			p.reset(now)
		}
	}
}

// Define applies a changed definition. The result is kept if only numbers or the address have changed,
// because a pod with another address has other containers, too (PPM-081).
func (p *Prober) Define(d Definition, now time.Time) {
	same := p.sameTarget(&d)
	if p.Container != d.Container {
		p.container = ""
	}
	p.Definition = d
	if !same {
		p.target = d.targetHash()
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

// reset discards what was observed. If nothing has been reported yet, nothing is reported as unknown.
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
	// Replace invalid UTF-8. The API server would do the same, and the stored message would differ forever.
	p.State, p.Message, p.Probed = state, wording.Clip(strings.ToValidUTF8(message, "\uFFFD"), mostMessage), now
}

// Met describes the container with the name in the definition, as the runtime reports it.
type Met struct {
	// ID is empty if there is no container.
	ID      string
	Running bool
	// Started is the time when it started. It is zero if the runtime was not queried for it.
	Started time.Time
	// Starting means that its startup probe has not succeeded yet.
	Starting bool
}

// Meet records the current container and reports whether an attempt is due. A new container has no result yet
// (PPM-084), one that is not running has failed (PPM-085), and no attempts are made while it is starting
// (PPM-086, PPM-087). A container may be observed before it runs, and has no result once it does. Its
// liveness probe does not fail if it is not running, because kubelet handles that.
func (p *Prober) Meet(c Met, now time.Time) bool {
	if c.ID == "" || p.Refused != "" {
		return false
	}

	if p.container != c.ID {
		// What a previous process observed was a container that had started by then, and no attempt is made
		// in the second of its start. If the clock was set back since, only a container that started by the former
		// clock can be told from another one.
		if !p.resumed || c.Started.After(p.Probed) || p.Probed.After(now) && !c.Started.After(now) {
			p.reset(now)
		}
		p.container, p.started, p.resumed = c.ID, c.Started, false
	}
	if p.started.After(now) { // the clock was set back
		p.started = now
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

// Take records the outcome of an attempt (PPM-091). The outcome is discarded if the container was replaced
// meanwhile. An attempt that could not be made changes no result. If there is none, it is reported why.
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

// notCarriedOut is the prefix of messages about attempts that say nothing about the container.
const notCarriedOut = "the probe cannot be carried out: "

// mostMessage is the maximum length of messages in bytes.
const mostMessage = 1024
