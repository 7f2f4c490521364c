package podapply

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Memory is what is kept about a workload from one pass to the next. The zero value is empty.
type Memory struct {
	news reconcile.News
	// pullsHeld is the time until which ImagePullJobs are left alone because they could not be written.
	pullsHeld time.Time
	// creation, updates and growth record the last attempts to create pods, to update one in place, and to
	// grow claims.
	creation, updates, growth timing.Retry
	// refused holds the objects for which requests were refused.
	refused refusals
	// failedNodes are the nodes for which a pod could not be created, and when last.
	failedNodes map[string]time.Time
	// waits tracks since when the workload makes no progress.
	waits waiting.Tracker
	// known is what earlier plans have found out.
	known podplan.Knowledge
	// foreign records which images that others wrote into pods were reported.
	foreign foreignMemory
}

// refusals are the objects for which the last request failed. They count for one generation only,
// since another spec may be accepted.
type refusals struct {
	generation int64
	of         map[types.UID]refusal
	// at are those that come after all others, and when they were refused. long are those of them that were refused ten minutes before, too.
	at   map[types.UID]time.Time
	long map[types.UID]bool
}

// refusal is what was refused last and when, and how long it comes after all others since then: four times as long
// when it is refused again after that time, because of many that are refused for good only one is tried in a minute.
// What is refused before that is one refusal: passes after a failure follow each other within milliseconds at first.
type refusal struct {
	of        podplan.Action
	first, at time.Time
	lasts     time.Duration
}

// about identifies what attempts are made for. They count for one generation only, since another spec may
// succeed.
func about(generation int64) string { return strconv.FormatInt(generation, 10) }

// HoldBack records in the snapshot which attempts failed a moment ago for a spec of that generation.
func (m *Memory) HoldBack(s *podplan.Snapshot, generation int64) {
	s.Known, s.PullJobsHeldUntil = &m.known, m.pullsHeld
	s.CreationHeldUntil, s.CreationError = m.creation.Last(about(generation))
	s.GrowthHeldUntil, s.GrowthError = m.growth.Last(about(generation))
	s.UpdateHeldUntil, s.UpdateRefused = m.updates.Last(about(generation))
	s.FailedNodes = m.failedNodes
	if m.refused.generation == generation {
		s.Refused, s.RefusedLong = m.refused.at, m.refused.long
	}
}

// learn remembers the outcome of what the plan tried. Each attempt to create pods uses other names and so
// yields another message. Without a pause, the change of the condition that contains it would trigger the
// next attempt at once, and claims without a pod would come and go.
func (m *Memory) learn(generation int64, result *Result, now time.Time) {
	// Where some succeed the pause does not grow: it must not slow down a large rollout of which a few requests fail.
	attempted := func(retry *timing.Retry, succeeded bool, err error) {
		if succeeded {
			*retry = timing.Retry{}
		}
		if err != nil {
			retry.Failed(about(generation), err, now)
		}
	}
	attempted(&m.creation, result.Created > 0, result.CreateError)
	attempted(&m.growth, result.Grew && result.GrowthError == nil, result.GrowthError)
	attempted(&m.updates, result.Updated, result.Refused)
	m.rememberRefusals(generation, result, now)
	m.rememberNodes(result.Nodes, now)
}

// firstRefusal is how long an object that was refused once comes after all others. refusalLasts is how long an object
// that was refused often does, and a node for which pods could not be created. It bounds what is remembered of what is
// gone.
const firstRefusal, refusalLasts = 10 * time.Minute, 12 * time.Hour

// rememberNodes records for which nodes pods could be created, and for which not. The oldest failure is forgotten if
// there are too many.
func (m *Memory) rememberNodes(tried map[string]bool, now time.Time) {
	maps.DeleteFunc(m.failedNodes, func(node string, at time.Time) bool {
		_, again := tried[node]
		return again || now.Sub(at) > refusalLasts
	})
	for node, created := range tried {
		if created {
			continue
		}
		if m.failedNodes == nil {
			m.failedNodes = map[string]time.Time{}
		}
		if m.failedNodes[node] = now; len(m.failedNodes) > podplan.MostFailedNodes {
			delete(m.failedNodes, slices.MinFunc(slices.Collect(maps.Keys(m.failedNodes)),
				func(a, b string) int { return m.failedNodes[a].Compare(m.failedNodes[b]) }))
		}
	}
}

// rememberRefusals records the refusals of this pass, and drops those of objects that were written since.
func (m *Memory) rememberRefusals(generation int64, result *Result, now time.Time) {
	if m.refused.generation != generation {
		m.refused = refusals{generation: generation}
	}
	if len(m.refused.of)+len(result.RefusedObjects) == 0 { // nothing is kept of most workloads
		m.refused.of, m.refused.at, m.refused.long = nil, nil, nil
		return
	}
	if m.refused.of == nil {
		m.refused.of = map[types.UID]refusal{}
	}
	of := m.refused.of
	for _, v := range result.Done {
		if v.Written() || v.Action == of[v.Pod.UID].of { // a pod that goes back into service is not updated yet
			delete(of, v.Pod.UID)
		}
	}
	for uid, action := range result.RefusedObjects {
		last, before := of[uid]
		if !before {
			last.first = now
		}
		if now.Sub(last.at) >= last.lasts {
			last.lasts = min(max(4*last.lasts, firstRefusal), refusalLasts)
		}
		if action == podplan.Patch && last.of != "" { // its success would say nothing of what was refused before
			action = last.of
		}
		of[uid] = refusal{action, last.first, now, last.lasts}
	}

	m.refused.at, m.refused.long = map[types.UID]time.Time{}, map[types.UID]bool{}
	for uid, r := range of {
		switch since := now.Sub(r.at); {
		case since < r.lasts:
			m.refused.at[uid] = r.at
			if r.at.Sub(r.first) >= firstRefusal {
				m.refused.long[uid] = true
			}
		case since >= refusalLasts:
			delete(of, uid)
		}
	}
}

// pullRetryAfter is how long jobs are left alone after they could not be written. The rollout goes on
// meanwhile.
const pullRetryAfter = 30 * time.Second

// conclude remembers the outcome of a plan, and reports to users what the workload waits for. progress is how
// far the owner is, as its kind counts. It returns the delay after which a pass is due to go on, and the
// delay after which one is due only to report what has not changed; 0 means not at all.
func (m *Memory) conclude(
	a *Execution, result *Result, progress waiting.Progress,
) (after, tell time.Duration) {
	now := a.Now()
	m.learn(a.owner.GetGeneration(), result, now)
	if result.PullError != nil || len(a.plan.Pulls) > 0 {
		text := ""
		if result.PullError != nil {
			text, m.pullsHeld = result.PullError.Error(), now.Add(pullRetryAfter)
			reconcile.MinRequeue(&after, pullRetryAfter)
		}
		m.Once(a, corev1.EventTypeWarning, "FailedCreateImagePullJob", text)
	}

	if errors.Is(result.CreateError, errEnding) { // no error lets the queue try again
		until, _ := m.creation.Last(about(a.owner.GetGeneration()))
		reconcile.MinRequeue(&after, until.Sub(now))
	}
	if result.Retry {
		reconcile.MinRequeue(&after, reconcile.RetryAfter)
	}

	tell = m.stillness(a, result, progress, now)
	reconcile.MinRequeue(&tell, m.tellForeign(a, now))
	return after, tell
}

// Once records an event unless its message is the same as last time; an empty message clears the last one
// (CS-237).
func (m *Memory) Once(a *Execution, eventType, reason, message string) {
	if m.news.Is(reason, message) {
		a.Events.Event(a.owner, eventType, reason, message)
	}
}

// stillness reports what the workload waits for if it has made no progress for a while. It returns the delay
// after which a pass is due for that.
func (m *Memory) stillness(
	a *Execution, result *Result, progress waiting.Progress, now time.Time,
) time.Duration {
	progress.Generation, progress.Moved, progress.Wait = a.owner.GetGeneration(), result.Created > 0,
		a.plan.Waiting
	for _, v := range result.Done {
		switch v.Action {
		case podplan.UpdateInPlace, podplan.Recreate, podplan.Delete:
			progress.Moved = true
		}
	}

	// An attempt failed. The plan that made it waits for nothing, unlike the plans before and after it.
	if progress.Wait == nil {
		if text := podplan.FailureWords(result.ScaleError, ""); text != "" {
			progress.Wait = &waiting.Wait{Reason: "FailedScale", Message: text}
		} else if text := podplan.FailureWords(result.UpdateError, ""); text != "" {
			progress.Wait = &waiting.Wait{Reason: "FailedUpdate", Message: text}
		}
	}

	words, after := m.waits.Passed(progress, now)
	if words != "" {
		a.Events.Event(a.owner, corev1.EventTypeWarning, waiting.EventReason, words)
	}

	return after
}
