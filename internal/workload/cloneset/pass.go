package cloneset

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/afloat-project/afloat/internal/engine/podplan"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/retries"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Pass brings one CloneSet a step further.
type Pass struct {
	Kube     *Kube
	Applier  Applier
	Features Features
	Random   func(n int) int

	memory reconcile.Memory[memory]
}

// memory is what a pass keeps of a set for the next ones.
type memory struct {
	news   reconcile.News // CS-237
	status reconcile.StatusPace
	// pullsHeld is until when the set's ImagePullJobs are left alone because they could not be written.
	pullsHeld time.Time
	// creation, updates and growth are what became of the last attempt to create pods, to update one in place, and to grow claims (CS-072).
	creation, updates, growth retries.Retry
	// refused are the objects about which requests were refused.
	refused refusals
	// waits knows since when the set stands still.
	waits waiting.Watch
	// foreign is what was told of images that others wrote into pods.
	foreign foreignMemory
}

// refusals are objects about which the API server refused the last request, and when. Another spec may be another matter.
type refusals struct {
	generation int64
	at         map[types.UID]time.Time
}

// Outcome is what a pass did.
type Outcome struct {
	// Plan that was carried out; nil if there was nothing to plan, or not yet.
	Plan *Plan
	// After is when to come back although nothing happens; 0 means not at all.
	After time.Duration
	// Tell is when to come back only to tell of what has not changed; 0 means not at all (IPU-326, OPS-099).
	Tell time.Duration
	// Unfinished: there is more to be written at once.
	Unfinished bool
	// Done are the verdicts that were carried out, and Created is how many pods were created.
	Done    []*podplan.Verdict
	Created int
}

// retryAfter is when to come back if the world changed under a plan; usually an event is faster.
const retryAfter = time.Second

// Run makes one pass over a set: it plans, applies, and writes the status last (CS-070). An error means that something failed that trying again
// may mend; it is on the set's conditions and events too.
func (p *Pass) Run(ctx context.Context, name types.NamespacedName, owner types.UID) (Outcome, error) {
	now := p.Kube.Now()
	if err := p.Kube.Own.Settle(ctx, owner, now); err != nil {
		return Outcome{}, err
	}
	// Only now: what was read before the writes were found settled may be older than they are.
	set, err := p.Kube.Set(ctx, name, owner)
	if err != nil || set == nil || set.UID != owner {
		return Outcome{}, err
	}
	snapshot, err := p.Kube.Snapshot(ctx, set)
	if err != nil {
		return Outcome{}, err
	}
	snapshot.Now, snapshot.Random, snapshot.Features = now, p.Random, p.Features
	kept := p.memory.Of(owner)
	kept.holdBack(snapshot)
	plan := Make(*snapshot)
	result := p.Applier.Apply(ctx, plan)
	p.announce(plan)
	kept.learn(plan, result, p.Kube.Now())
	p.pulled(plan, result)
	outcome := Outcome{Plan: plan, After: plan.After, Unfinished: result.Unfinished || plan.Probing && result.Created > 0, Done: result.Done, Created: result.Created}
	if outcome.Unfinished && (len(result.Done) > 0 || result.UpdateError == nil && result.ScaleError == nil) { // else the back-off of the queue decides
		outcome.After = time.Millisecond
	}
	reconcile.Sooner(&outcome.After, p.Kube.Own.Again(owner))
	if result.Retry {
		reconcile.Sooner(&outcome.After, retryAfter)
	}
	if result.PullError != nil {
		reconcile.Sooner(&outcome.After, pullRetryAfter)
	}
	outcome.Tell = p.stillness(plan, result)
	if after := p.tellForeign(plan); after > 0 && (outcome.Tell == 0 || after < outcome.Tell) {
		outcome.Tell = after
	}
	status, changed := plan.FinalStatus(result.ScaleError, result.UpdateError, p.Kube.Now())
	if !changed {
		return outcome, errors.Join(result.ScaleError, result.UpdateError)
	}
	if wait := kept.status.Wait(p.Kube.Now(), onlyNumbers(&plan.Set.Status, status)); wait > 0 {
		reconcile.Sooner(&outcome.After, wait)
		return outcome, errors.Join(result.ScaleError, result.UpdateError)
	}
	statusErr := p.writeStatus(ctx, plan, result, status)
	if apierrors.IsConflict(statusErr) || apierrors.IsNotFound(statusErr) {
		outcome.After, statusErr = retryAfter, nil
	}
	return outcome, errors.Join(result.ScaleError, result.UpdateError, statusErr)
}

// Forget drops what is remembered of a set that is gone.
func (p *Pass) Forget(owner types.UID) {
	p.Kube.Own.Forget(owner)
	p.memory.Forget(owner)
}

// about is what attempts are made for: another spec may be another matter.
func about(set *appsv1beta1.CloneSet) string { return strconv.FormatInt(set.Generation, 10) }

// holdBack tells the snapshot of attempts that failed a moment ago.
func (m *memory) holdBack(s *Snapshot) {
	s.PullJobsHeldUntil = m.pullsHeld
	s.CreationHeldUntil, s.CreationError = m.creation.Last(about(s.Set))
	s.GrowthHeldUntil, s.GrowthError = m.growth.Last(about(s.Set))
	s.UpdateHeldUntil, s.UpdateRefused = m.updates.Last(about(s.Set))
	if m.refused.generation == s.Set.Generation {
		s.Refused = m.refused.at
	}
}

// learn remembers what became of what the plan tried. Each attempt to create has other names and so another message; without a pause the condition that
// tells it would call for the next attempt at once, and claims without a pod would come and go.
func (m *memory) learn(plan *Plan, result Result, now time.Time) {
	attempted := func(retry *retries.Retry, succeeded bool, err error) {
		switch {
		case err != nil:
			retry.Failed(about(plan.Set), err, now)
		case succeeded:
			*retry = retries.Retry{}
		}
	}
	attempted(&m.creation, result.Created > 0, result.CreateError)
	attempted(&m.growth, len(plan.ClaimGrowth) > 0 && !result.Halted, result.GrowthError)
	attempted(&m.updates, result.Updated, result.Refused)
	m.rememberRefusals(plan, result, now)
}

// refusalLasts is how long what was refused comes after everything else. It bounds what is remembered of objects that are gone.
const refusalLasts = 10 * time.Minute

// rememberRefusals notes what was refused in this pass, and forgets what was written since.
func (m *memory) rememberRefusals(plan *Plan, result Result, now time.Time) {
	next := refusals{plan.Set.Generation, map[types.UID]time.Time{}}
	if m.refused.generation == plan.Set.Generation {
		for uid, at := range m.refused.at {
			if now.Sub(at) < refusalLasts {
				next.at[uid] = at
			}
		}
	}
	for _, v := range result.Done {
		if v.Action == podplan.UpdateInPlace || v.Action == podplan.Recreate {
			delete(next.at, v.Pod.UID)
		}
	}
	for _, uid := range result.RefusedObjects {
		next.at[uid] = now
	}
	m.refused = next
}

// onlyNumbers tells whether nothing but numbers of pods changes, and how far a rollout is, in words.
func onlyNumbers(from, status *appsv1beta1.CloneSetStatus) bool {
	old := from.DeepCopy()
	for _, numbers := range []func(*appsv1beta1.CloneSetStatus) *int32{
		func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.Replicas }, func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.ReadyReplicas },
		func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.AvailableReplicas }, func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.UpdatedReplicas },
		func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.UpdatedReadyReplicas }, func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.UpdatedAvailableReplicas },
	} {
		*numbers(old) = *numbers(status)
	}
	for i := range old.Conditions {
		next := condition(status, old.Conditions[i].Type)
		if next != nil && next.Type == appsv1beta1.CloneSetConditionProgressing && next.Status == old.Conditions[i].Status && next.Reason == old.Conditions[i].Reason {
			old.Conditions[i] = *next
		}
	}
	return equality.Semantic.DeepEqual(*old, *status)
}

func (p *Pass) writeStatus(ctx context.Context, plan *Plan, result Result, status *appsv1beta1.CloneSetStatus) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if result.Pruned || plan.NewRevision != nil && result.Retry {
		return nil // a version of the set that this pass has outdated itself is written by the next one
	}
	body, err := reconcile.StatusPatch(plan.Set, &plan.Set.Status, status)
	if err != nil || body == nil {
		return err
	}
	if _, err := reconcile.Patch(ctx, p.Kube.For(plan.Set.UID), plan.Set, body, "status"); err != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	return nil
}

// announce records what the plan itself has to say: refusals when they change, throttled creation once for each state (CS-237).
func (p *Pass) announce(plan *Plan) {
	if plan.UpdateError != "" {
		if previous := condition(&plan.Set.Status, appsv1beta1.CloneSetConditionFailedUpdate); previous == nil || previous.Message != plan.UpdateError {
			p.Applier.Events.Event(plan.Set, corev1.EventTypeWarning, "FailedUpdatePodInPlace", plan.UpdateError)
		}
	}
	p.once(plan, corev1.EventTypeWarning, "ScaleUpLimited", plan.ScaleLimited)
	p.once(plan, corev1.EventTypeNormal, "WaitingForClaims", plan.ClaimsAwaited)
	p.once(plan, corev1.EventTypeWarning, "ClaimsNotReused", plan.ClaimsNotReused)
	orphans := ""
	if len(plan.Orphans) > 0 {
		orphans = "pods that match the selector and belong to nobody are not adopted: " + strings.Join(plan.Orphans, ", ") // CS-355
	}
	p.once(plan, corev1.EventTypeWarning, "OrphanPods", orphans)
	p.once(plan, corev1.EventTypeWarning, "ClaimNotResized", plan.ClaimsHeld)
}

// once records an event with a message that is not what was said last; an empty one forgets it (CS-237).
func (p *Pass) once(plan *Plan, eventType, reason, message string) {
	if p.memory.Of(plan.Set.UID).news.Is(reason, message) {
		p.Applier.Events.Event(plan.Set, eventType, reason, message)
	}
}
