package sidecarset

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/platform/ownwrites"
)

// Reader is what a pass reads from the caches.
type Reader interface {
	// Owner returns the UID of a SidecarSet, empty if it does not exist.
	Owner(ctx context.Context, name string) (types.UID, error)
	// Snapshot reads a SidecarSet with its pods and revisions; nil if it does not exist. Time and features are filled in by the pass.
	Snapshot(ctx context.Context, name string) (*Snapshot, error)
	// Injected are the pods that list a SidecarSet, whether it exists or not.
	Injected(name string) ([]*corev1.Pod, error)
	// Cached and Live read the metadata of one object from the cache and from the API server.
	Cached(ctx context.Context, object ownwrites.Object) (metav1.Object, error)
	Live(ctx context.Context, object ownwrites.Object) (metav1.Object, error)
}

// Pass brings one SidecarSet a step further.
type Pass struct {
	Reader   Reader
	Applier  Applier
	Features Features

	mu sync.Mutex
	// said is what events that repeat were last about, by reason.
	said map[types.UID]map[string]string
	// written is when the status was last written, pending since when the caches have not shown a write.
	written, pending map[types.UID]time.Time
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
	// Pending is what the cache has to show before a plan can be made (SS-193).
	Pending string
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

// doubtsEnd is when writes that caches do not show are not waited for any more, whatever the reason (SS-193).
const doubtsEnd = 5 * time.Minute

// Run makes one pass: it waits until the caches show what was written, plans, applies, and writes the status last (SS-192).
func (p *Pass) Run(ctx context.Context, name string) (Outcome, error) {
	owner, err := p.Reader.Owner(ctx, name)
	if err != nil {
		return Outcome{}, err
	}
	if owner == "" {
		return p.forgotten(ctx, name)
	}
	now := p.Applier.Now()
	pending, err := p.Applier.Own.Pending(ctx, owner, p.Reader.Cached, p.Reader.Live, now)
	if err != nil {
		return Outcome{}, err
	}
	if pending != "" && !p.over(owner, now) {
		return Outcome{Pending: pending, After: ownwrites.DoubtAfter / 2}, nil
	}
	p.settled(owner)
	snapshot, err := p.Reader.Snapshot(ctx, name)
	if err != nil || snapshot == nil || snapshot.Set.UID != owner {
		return Outcome{}, err
	}
	snapshot.Now, snapshot.Features, snapshot.Known = now, p.Features, p.knowledge(owner)
	plan := Make(*snapshot)
	if pending, err := p.overtaken(ctx, plan); err != nil || pending != "" {
		return Outcome{Pending: pending, After: retryAfter}, err
	}
	result := p.Applier.Apply(ctx, plan)
	snapshot.Known.learn(plan, result, p.Applier.Now())
	p.announce(plan)
	outcome := Outcome{Plan: plan, Done: result.Done, After: plan.Again, Tell: p.stillness(plan, result)}
	if slices.ContainsFunc(plan.Verdicts, func(v *PodVerdict) bool { return v.Reason == ReasonMetadata }) {
		outcome.within(mendedAfter)
	}
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
	final.add(p.Applier.writeStatus(ctx, plan, &plan.Status))
	if final.Retry {
		outcome.within(retryAfter)
	}
	return outcome, errors.Join(result.Err, final.Err)
}

// overtaken tells what the cache has to show before pods are upgraded: the SidecarSet as it is now. Caches of pods and of SidecarSets lag apart, and
// webhooks may have known a change before; a pod that has what that gives must not be taken back. One live read settles it.
func (p *Pass) overtaken(ctx context.Context, plan *Plan) (pending string, err error) {
	if !slices.ContainsFunc(plan.Verdicts, func(v *PodVerdict) bool { return v.Action == Upgrade }) {
		return "", nil
	}
	set := plan.SidecarSet
	now, err := p.Reader.Live(ctx, ownwrites.Object{Kind: KindSet, NamespacedName: types.NamespacedName{Name: set.Name}})
	if err != nil || now != nil && now.GetUID() == set.UID && now.GetGeneration() == set.Generation && maps.Equal(now.GetAnnotations(), set.Annotations) {
		return "", err
	}
	return "the cache does not show the SidecarSet as it is now", nil
}

// over tells whether the caches have lagged for so long that it is not waited any more.
func (p *Pass) over(owner types.UID, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending == nil {
		p.pending = map[types.UID]time.Time{}
	}
	since, ok := p.pending[owner]
	if !ok {
		p.pending[owner] = now
		return false
	}
	if now.Sub(since) < doubtsEnd {
		return false
	}
	p.Applier.Own.Forget(owner)
	return true
}

func (p *Pass) settled(owner types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, owner)
}

// Forget drops what is remembered of a SidecarSet that is gone.
func (p *Pass) Forget(owner types.UID) {
	p.Applier.Own.Forget(owner)
	p.waits.Forget(owner)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.said, owner)
	delete(p.written, owner)
	delete(p.pending, owner)
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
	pods, err := p.Reader.Injected(name)
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
	p.Applier.Own.Forget("") // a conflict is all that comes of a cache that lags
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
	now, owner := p.Applier.Now(), plan.SidecarSet.UID
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
