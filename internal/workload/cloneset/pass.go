package cloneset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Pass brings one CloneSet a step further.
type Pass struct {
	Kube     *Kube
	Applier  Applier
	Features Features
	Random   func(n int) int

	mu   sync.Mutex
	said map[types.UID]map[string]string // what events that repeat were last about (CS-237), by reason
	told map[types.UID]time.Time         // when the status was last written
	// pullsHeld is until when a set's ImagePullJobs are left alone because they could not be written.
	pullsHeld map[types.UID]time.Time
	// creation, updates and growth are what became of the last attempt to create pods, to update one in place, and to grow claims, if it failed.
	creation, updates, growth map[types.UID]failure
	// refused are the objects of each set about which requests were refused.
	refused map[types.UID]refusals
	// waits knows since when sets stand still.
	waits waiting.Memory
	// foreign is what was told of images that others wrote into pods.
	foreign map[types.UID]foreignMemory
}

// refusals are objects about which the API server refused the last request, and when. Another spec may be another matter.
type refusals struct {
	generation int64
	at         map[types.UID]time.Time
}

// failure holds further attempts back, longer each time, until the set changes (CS-072).
type failure struct {
	until      time.Time
	wait       time.Duration
	generation int64
	message    string
}

// What failed is tried again after a second, and after twice the time each time it fails again, up to a minute.
const firstRetry, lastRetry = time.Second, time.Minute

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
	Done    []*Verdict
	Created int
}

// within sees to it that the pass is repeated after that time at the latest; 0 means not at all.
func (o *Outcome) within(after time.Duration) {
	if after > 0 && (o.After == 0 || after < o.After) {
		o.After = after
	}
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
	snapshot.PullJobsHeldUntil = p.heldUntil(snapshot.Set)
	p.holdBack(snapshot)
	plan := Make(*snapshot)
	result := p.Applier.Apply(ctx, plan)
	p.announce(plan)
	if len(plan.Create) > 0 {
		p.attempted(&p.creation, plan, result.CreateError)
	}
	if len(plan.ClaimGrowth) > 0 {
		p.attempted(&p.growth, plan, result.GrowthError)
	}
	if result.Refused != nil || result.Updated {
		p.attempted(&p.updates, plan, result.Refused)
	}
	p.rememberRefusals(plan, result)
	p.pulled(plan, result)
	outcome := Outcome{Plan: plan, After: plan.After, Unfinished: result.Unfinished, Done: result.Done, Created: result.Created}
	if result.Unfinished && (len(result.Done) > 0 || result.UpdateError == nil && result.ScaleError == nil) { // else the back-off of the queue decides
		outcome.After = time.Millisecond
	}
	outcome.within(p.Kube.Own.Again(owner))
	if result.Retry {
		outcome.within(retryAfter)
	}
	if result.PullError != nil {
		outcome.within(pullRetryAfter)
	}
	outcome.Tell = p.stillness(plan, result)
	if after := p.tellForeign(plan); after > 0 && (outcome.Tell == 0 || after < outcome.Tell) {
		outcome.Tell = after
	}
	status, changed := plan.FinalStatus(result.ScaleError, result.UpdateError, p.Kube.Now())
	if !changed {
		return outcome, errors.Join(result.ScaleError, result.UpdateError)
	}
	if wait := p.statusMayWait(plan, status); wait > 0 {
		outcome.within(wait)
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
	p.waits.Forget(owner)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.said, owner)
	delete(p.told, owner)
	delete(p.pullsHeld, owner)
	delete(p.creation, owner)
	delete(p.updates, owner)
	delete(p.growth, owner)
	delete(p.refused, owner)
	delete(p.foreign, owner)
}

// holdBack tells the snapshot of attempts that failed a moment ago.
func (p *Pass) holdBack(s *Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed, ok := p.creation[s.Set.UID]; ok && failed.generation == s.Set.Generation {
		s.CreationHeldUntil, s.CreationError = failed.until, failed.message
	}
	if failed, ok := p.growth[s.Set.UID]; ok && failed.generation == s.Set.Generation {
		s.GrowthHeldUntil, s.GrowthError = failed.until, failed.message
	}
	if failed, ok := p.updates[s.Set.UID]; ok && failed.generation == s.Set.Generation {
		s.UpdateHeldUntil, s.UpdateRefused = failed.until, failed.message
	}
	if refused := p.refused[s.Set.UID]; refused.generation == s.Set.Generation {
		s.Refused = refused.at
	}
}

// refusalLasts is how long what was refused comes after everything else. It bounds what is remembered of objects that are gone.
const refusalLasts = 10 * time.Minute

// rememberRefusals notes what was refused in this pass, and forgets what was written since.
func (p *Pass) rememberRefusals(plan *Plan, result Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, next := p.Kube.Now(), refusals{plan.Set.Generation, map[types.UID]time.Time{}}
	if before := p.refused[plan.Set.UID]; before.generation == plan.Set.Generation {
		for uid, at := range before.at {
			if now.Sub(at) < refusalLasts {
				next.at[uid] = at
			}
		}
	}
	for _, v := range result.Done {
		if v.Action == UpdateInPlace || v.Action == Recreate {
			delete(next.at, v.Pod.UID)
		}
	}
	for _, uid := range result.RefusedObjects {
		next.at[uid] = now
	}
	if len(next.at) == 0 {
		delete(p.refused, plan.Set.UID)
		return
	}
	if p.refused == nil {
		p.refused = map[types.UID]refusals{}
	}
	p.refused[plan.Set.UID] = next
}

// attempted remembers what became of the plan's creations or updates. Each attempt to create has other names and so another message; without
// a pause the condition that tells it would call for the next attempt at once, and claims without a pod would come and go.
func (p *Pass) attempted(failures *map[types.UID]failure, plan *Plan, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(*failures, plan.Set.UID)
		return
	}
	if *failures == nil {
		*failures = map[types.UID]failure{}
	}
	wait := firstRetry
	if last, ok := (*failures)[plan.Set.UID]; ok && last.generation == plan.Set.Generation {
		wait = min(2*last.wait, lastRetry)
	}
	(*failures)[plan.Set.UID] = failure{p.Kube.Now().Add(wait), wait, plan.Set.Generation, err.Error()}
}

// statusEvery is how often a status is written of which nothing but the numbers of pods changes.
const statusEvery = 500 * time.Millisecond

// statusMayWait tells for how long the status need not be written, because only its numbers changed and it was written just before: the
// pods of a large set change faster than anybody reads. It remembers that it is written otherwise.
func (p *Pass) statusMayWait(plan *Plan, status *appsv1beta1.CloneSetStatus) time.Duration {
	now := p.Kube.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told == nil {
		p.told = map[types.UID]time.Time{}
	}
	old := plan.Set.Status.DeepCopy()
	for _, numbers := range []func(*appsv1beta1.CloneSetStatus) *int32{
		func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.Replicas }, func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.ReadyReplicas },
		func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.AvailableReplicas }, func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.UpdatedReplicas },
		func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.UpdatedReadyReplicas }, func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.UpdatedAvailableReplicas },
	} {
		*numbers(old) = *numbers(status)
	}
	for i := range old.Conditions { // how far a rollout is, in words
		next := condition(status, old.Conditions[i].Type)
		if next != nil && next.Type == appsv1beta1.CloneSetConditionProgressing && next.Status == old.Conditions[i].Status && next.Reason == old.Conditions[i].Reason {
			old.Conditions[i] = *next
		}
	}
	if wait := statusEvery - now.Sub(p.told[plan.Set.UID]); wait > 0 && equality.Semantic.DeepEqual(*old, *status) {
		return wait
	}
	p.told[plan.Set.UID] = now
	return 0
}

func (p *Pass) writeStatus(ctx context.Context, plan *Plan, result Result, status *appsv1beta1.CloneSetStatus) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if result.Pruned || plan.NewRevision != nil && result.Retry {
		return nil // a version of the set that this pass has outdated itself is written by the next one
	}
	changes, err := statusPatch(&plan.Set.Status, status)
	if err != nil {
		return err
	}
	body, err := reconcile.MergePatch(plan.Set, nil, map[string]any{"status": changes})
	if err != nil {
		return err
	}
	if _, err := reconcile.Patch(ctx, p.Kube.For(plan.Set.UID), plan.Set, body, "status"); err != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	return nil
}

// statusPatch returns the members of the status that changed; removed ones are null. The first status is written whole, since the
// schema requires members that are zero.
func statusPatch(old, new *appsv1beta1.CloneSetStatus) (json.RawMessage, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	if equality.Semantic.DeepEqual(*old, appsv1beta1.CloneSetStatus{}) {
		before = []byte("{}")
	}
	after, err := json.Marshal(new)
	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, fmt.Errorf("comparing status: %w", err)
	}
	return patch, nil
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.said == nil {
		p.said = map[types.UID]map[string]string{}
	}
	if p.said[plan.Set.UID][reason] == message {
		return
	}
	if p.said[plan.Set.UID] == nil {
		p.said[plan.Set.UID] = map[string]string{}
	}
	p.said[plan.Set.UID][reason] = message
	if message != "" {
		p.Applier.Events.Event(plan.Set, eventType, reason, message)
	}
}
