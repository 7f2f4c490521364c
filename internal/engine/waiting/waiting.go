// Package waiting decides when an event reports that a rollout or a scaling makes no progress for a reason
// that nobody asked for: after some time, once for each reason, and rarely again (OPS-099).
package waiting

import (
	"fmt"
	"strings"
	"time"
)

// EventReason is the reason of the event that reports a wait.
const EventReason = "RolloutWaiting"

// NotReady is the reason of a Wait that waits only for pods to become ready.
const NotReady = "PodsNotReady"

const (
	stillFor    = 30 * time.Second // how long nothing moves before it is reported
	reportAgain = 10 * time.Minute // how long the same reason is not reported again
	mostPods    = 3                // how many pods are named
	mostOfEach  = 200              // how many bytes of each reason are shown
)

// Wait describes what holds up a rollout or a scaling without the user having asked for it.
type Wait struct {
	// Reason is one word; Message is a sentence with the numbers.
	Reason, Message string
	// Stuck is true if a pod that is waited for cannot recover by itself. Unpulled is true if that is because an
	// image cannot be pulled.
	Stuck, Unpulled bool
	pods            []string
	more            int
}

// Name adds a pod that is waited for, with its own reason.
func (w *Wait) Name(pod, why string) {
	if len(w.pods) == mostPods {
		w.more++
		return
	}
	if len(why) > mostOfEach {
		why = strings.ToValidUTF8(why[:mostOfEach], "") + "…"
	}
	w.pods = append(w.pods, fmt.Sprintf("pod %s: %s", pod, why))
}

// String returns the text for the user.
func (w *Wait) String() string {
	text := w.Reason + ": " + w.Message
	if len(w.pods) > 0 {
		text += ". " + strings.Join(w.pods, ". ")
	}
	if w.more > 0 {
		text += fmt.Sprintf(". And %d more", w.more)
	}
	return text
}

// Progress describes how far a workload is after a pass.
type Progress struct {
	// Generation is that of the object. Another generation is another rollout.
	Generation int64
	// Arrived grows with every pod that reaches the state that the spec wants.
	Arrived int
	// Complete is true if all pods have arrived. Pods that become unready later do not belong to the rollout.
	Complete bool
	// Moved is true if the pass created or deleted a pod, or started to change one.
	Moved bool
	// Wait is what holds up the workload; nil if nothing does.
	Wait *Wait
}

// Tracker remembers since when one workload has made no progress, and what was reported about it. The zero
// value is ready to use.
type Tracker struct {
	begun      bool
	generation int64
	since      time.Time
	arrived    int
	held       bool
	complete   bool
	another    bool // the generation has changed, and nothing has moved since
	reported   map[string]time.Time
}

// Passed records the result of a pass. It returns the message to report now, if any, and the time after which
// the next pass is due to report; 0 if none is.
func (w *Tracker) Passed(p Progress, now time.Time) (report string, after time.Duration) {
	if !w.begun {
		*w = Tracker{begun: true, since: now, reported: map[string]time.Time{}}
	}

	// This is another rollout, but the time without progress continues, because autoscalers write the spec
	// again and again.

	if w.generation != p.Generation {
		w.generation, w.arrived, w.complete, w.another = p.Generation, p.Arrived, false, true
	}
	if w.another && p.Moved { // the new rollout has started; the last report was about the former one
		w.another, w.reported = false, map[string]time.Time{}
	}

	w.complete = w.complete || p.Complete
	held := p.Wait != nil && (!w.complete || p.Wait.Reason != NotReady)
	// Pods that arrive and leave in turn are no progress.
	if p.Moved || !w.held || p.Arrived > w.arrived {
		w.since, w.arrived = now, max(p.Arrived, w.arrived)
	}
	if w.held = held; !held {
		return "", 0
	}

	due := w.since.Add(stillFor)
	about := p.Wait.Reason
	switch { // this is news, even after a report before the node found it out
	case p.Wait.Unpulled:
		about += " for an image"
	case p.Wait.Stuck:
		about += " for pods that are stuck"
	}
	if again := w.reported[about].Add(reportAgain); again.After(due) {
		due = again
	}
	if now.Before(due) {
		return "", due.Sub(now)
	}

	w.reported[about] = now
	return p.Wait.String(), reportAgain
}
