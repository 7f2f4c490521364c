// Package waiting tells the owner of a workload that a rollout, or a scaling, stands still because of something that nobody asked for:
// after some time, once for each reason, and rarely again (OPS-099).
package waiting

import (
	"fmt"
	"strings"
	"time"
)

// EventReason is the reason of the event that tells of a wait.
const EventReason = "RolloutWaiting"

// NotReady is the reason of a Wait where nothing but pods that are not ready is waited for.
const NotReady = "PodsNotReady"

const (
	heldFor    = 30 * time.Second // how long nothing may move before it is told
	toldAgain  = 10 * time.Minute // how long the same reason is not told again
	mostPods   = 3                // how many pods are named
	mostOfEach = 200              // how many bytes are told of each
)

// Wait is what holds a rollout or a scaling, and was not asked for by the user.
type Wait struct {
	// Reason is one word, Message says it with the numbers.
	Reason, Message string
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

// String is what the user reads.
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

// Progress is how far a workload is after a pass.
type Progress struct {
	// Generation is that of its spec: another one is another rollout.
	Generation int64
	// Arrived grows with every pod that is where the spec wants it.
	Arrived int
	// Complete: all of them are. What becomes of their readiness later is not the rollout's.
	Complete bool
	// Moved: the pass began to change, created or deleted a pod.
	Moved bool
	// Wait is what holds it; nil if nothing does.
	Wait *Wait
}

// Watch knows since when one workload stands still, and what was told of it. The zero value knows nothing.
type Watch struct {
	begun      bool
	generation int64
	since      time.Time
	arrived    int
	held       bool
	complete   bool
	another    bool // the generation has changed, and nothing has moved since
	told       map[string]time.Time
}

// Passed notes what a pass found. It returns what to tell now, empty if nothing, and after which time a pass is due to tell it; 0 if none
// is.
func (w *Watch) Passed(p Progress, now time.Time) (tell string, after time.Duration) {
	if !w.begun {
		*w = Watch{begun: true, since: now, told: map[string]time.Time{}}
	}
	// another rollout, but what stands still moves no sooner for it: autoscalers write the spec again and again
	if w.generation != p.Generation {
		w.generation, w.arrived, w.complete, w.another = p.Generation, p.Arrived, false, true
	}
	if w.another && p.Moved { // it has begun, and what was told was of the former one
		w.another, w.told = false, map[string]time.Time{}
	}
	w.complete = w.complete || p.Complete
	held := p.Wait != nil && (!w.complete || p.Wait.Reason != NotReady)
	if p.Moved || !w.held || p.Arrived > w.arrived { // pods that come and go in turn are no progress
		w.since, w.arrived = now, max(p.Arrived, w.arrived)
	}
	if w.held = held; !held {
		return "", 0
	}
	due := w.since.Add(heldFor)
	if again := w.told[p.Wait.Reason].Add(toldAgain); again.After(due) {
		due = again
	}
	if now.Before(due) {
		return "", due.Sub(now)
	}
	w.told[p.Wait.Reason] = now
	return p.Wait.String(), toldAgain
}
