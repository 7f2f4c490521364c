package sidecarset

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/waiting"
)

// Pass brings one SidecarSet a step further.
type Pass struct {
	Kube     *Kube
	Applier  Applier
	Features Features

	mu sync.Mutex
	// said is what events that repeat were last about, by reason.
	said map[types.UID]map[string]string
	// written is when the status was last written.
	written map[types.UID]time.Time
	// known is what plans have found out about pods. A SidecarSet is planned for by one worker at a time.
	known map[types.UID]*Knowledge
	// waits knows since when SidecarSets stand still.
	waits waiting.Memory
}

// Outcome is what a pass did.
type Outcome struct {
	// Plan that was carried out; nil if there was nothing to plan, or not yet.
	Plan *Plan
	// Done is how many pods were upgraded or reset.
	Done map[Action]int
	// After is when to come back although nothing happens; 0 means not at all.
	After time.Duration
	// Tell is when to come back only to tell that nothing has moved; 0 means not at all (OPS-099).
	Tell time.Duration
}

// within sees to it that the pass is repeated after that time at the latest; 0 means not at all (CS-076).
func (o *Outcome) within(after time.Duration) {
	if after > 0 && (o.After == 0 || after < o.After) {
		o.After = after
	}
}

// retryAfter is when to come back if the world changed under a plan; usually an event is faster.
const retryAfter = time.Second

// mendedAfter is when to look again at pods with an annotation that cannot be merged: annotations of others are no events.
const mendedAfter = time.Minute

// Run makes one pass: it plans, applies, and writes the status last (SS-192).
func (p *Pass) Run(ctx context.Context, name string) (Outcome, error) {
	set, err := p.Kube.Set(ctx, name)
	if err != nil {
		return Outcome{}, err
	}
	if set == nil {
		return p.forgotten(ctx, name)
	}
	owner, now := set.UID, p.Kube.Now()
	if err := p.Kube.Own.Settle(ctx, owner, now); err != nil {
		return Outcome{}, err
	}
	// Only now: what was read before the writes were found settled may be older than they are.
	if set, err = p.Kube.Set(ctx, name); err != nil || set == nil || set.UID != owner {
		return Outcome{}, err
	}
	snapshot, err := p.Kube.Snapshot(ctx, set)
	if err != nil {
		return Outcome{}, err
	}
	snapshot.Now, snapshot.Features, snapshot.Known = now, p.Features, p.knowledge(owner)
	plan := Make(*snapshot)
	if overtaken, err := p.overtaken(ctx, plan); err != nil || overtaken {
		return Outcome{After: time.Millisecond}, err
	}
	result := p.Applier.Apply(ctx, plan)
	snapshot.Known.learn(plan, result, p.Kube.Now())
	p.announce(plan)
	outcome := Outcome{Plan: plan, Done: result.Done, After: plan.Again, Tell: p.stillness(plan, result)}
	if slices.ContainsFunc(plan.Verdicts, func(v *PodVerdict) bool { return v.Reason == ReasonMetadata }) {
		outcome.within(mendedAfter)
	}
	outcome.within(p.Kube.Own.Again(owner))
	if result.Retry {
		outcome.within(retryAfter)
	}
	if result.NoRevision || equality.Semantic.DeepEqual(plan.SidecarSet.Status, plan.Status) {
		return outcome, result.Err
	}
	if wait := p.statusMayWait(plan); wait > 0 {
		outcome.within(wait)
		return outcome, result.Err
	}
	final := Result{}
	final.add(p.Applier.to(plan).writeStatus(ctx, &plan.Status))
	if final.Retry {
		outcome.within(retryAfter)
	}
	return outcome, errors.Join(result.Err, final.Err)
}

// overtaken tells that the SidecarSet is not as the cache has it, before pods are upgraded. Caches of pods and of SidecarSets lag apart, and webhooks
// may have known a change before; a pod that has what that gives must not be taken back. One live read tells, which the next plan is made from.
func (p *Pass) overtaken(ctx context.Context, plan *Plan) (bool, error) {
	if !slices.ContainsFunc(plan.Verdicts, func(v *PodVerdict) bool { return v.Action == Upgrade }) {
		return false, nil
	}
	set, now := plan.SidecarSet, &appsv1beta1.SidecarSet{}
	if err := p.Kube.For(set.UID).Read(ctx, types.NamespacedName{Name: set.Name}, now); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return now.UID != set.UID || now.Generation != set.Generation || !maps.Equal(now.Annotations, set.Annotations), nil
}

// Forget drops what is remembered of a SidecarSet that is gone.
func (p *Pass) Forget(owner types.UID) {
	p.Kube.Own.Forget(owner)
	p.waits.Forget(owner)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.said, owner)
	delete(p.written, owner)
	delete(p.known, owner)
}

func (p *Pass) knowledge(owner types.UID) *Knowledge {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[owner] == nil {
		if p.known == nil {
			p.known = map[types.UID]*Knowledge{}
		}
		p.known[owner] = &Knowledge{}
	}
	return p.known[owner]
}

// forgotten takes a SidecarSet that does not exist any more out of the conditions of its pods (SS-261). Nothing else of them is touched
// (SS-005).
func (p *Pass) forgotten(ctx context.Context, name string) (Outcome, error) {
	pods, err := p.Kube.Injected(name, "")
	if err != nil {
		return Outcome{}, err
	}
	plan := &Plan{SidecarSet: &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	for _, pod := range pods {
		if Active(pod) && lists(pod, name) {
			plan.Verdicts = append(plan.Verdicts, &PodVerdict{Pod: pod, Action: Keep, Forget: true})
		}
	}
	result := p.Applier.Apply(ctx, plan)
	p.Kube.Own.Forget("") // a conflict is all that comes of a cache that lags
	outcome := Outcome{}
	if result.Retry {
		outcome.within(retryAfter)
	}
	return outcome, result.Err
}

// statusEvery is how often a status is written of which nothing but the numbers of pods changes: those of a large set change faster than
// anybody reads.
const statusEvery = 500 * time.Millisecond

// statusMayWait tells for how long the status need not be written. It remembers that it is written otherwise.
func (p *Pass) statusMayWait(plan *Plan) time.Duration {
	now, owner := p.Kube.Now(), plan.SidecarSet.UID
	p.mu.Lock()
	defer p.mu.Unlock()
	old := plan.SidecarSet.Status
	old.MatchedPods, old.UpdatedPods, old.ReadyPods, old.UpdatedReadyPods =
		plan.Status.MatchedPods, plan.Status.UpdatedPods, plan.Status.ReadyPods, plan.Status.UpdatedReadyPods
	if wait := statusEvery - now.Sub(p.written[owner]); wait > 0 && equality.Semantic.DeepEqual(old, plan.Status) {
		return wait
	}
	if p.written == nil {
		p.written = map[types.UID]time.Time{}
	}
	p.written[owner] = now
	return 0
}
