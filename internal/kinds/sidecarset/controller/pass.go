package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Pass brings one SidecarSet a step further.
type Pass struct {
	Kube     *Kube
	Applier  Applier
	Features sidecarset.Features

	memory reconcile.Memory[memory]
}

// memory is what a pass keeps of a SidecarSet for the next ones.
type memory struct {
	news   reconcile.News
	status reconcile.StatusThrottle
	// known is what plans have found out about pods.
	known sidecarset.Knowledge
	// waits knows since when the SidecarSet stands still.
	waits waiting.Tracker
}

// Outcome is what a pass did.
type Outcome struct {
	// Plan that was carried out; nil if there was nothing to plan, or not yet.
	Plan *sidecarset.Plan
	// Done is how many pods were upgraded or reset.
	Done map[sidecarset.Action]int
	// Planning is how long it took to make the plan.
	Planning time.Duration
	// After is when to come back although nothing happens; 0 means not at all.
	After time.Duration
	// Tell is when to come back only to tell that nothing has moved; 0 means not at all (OPS-099).
	Tell time.Duration
}

// mendedAfter is when to look again at pods with an annotation that cannot be merged: annotations of others
// are no events.
const mendedAfter = time.Minute

// Run makes one pass: it plans, applies, and writes the status last (SS-192).
func (p *Pass) Run(ctx context.Context, name types.NamespacedName, owner types.UID) (Outcome, error) {
	if owner == "" {
		return p.forgotten(ctx, name.Name)
	}

	now := p.Kube.Now()
	set, err := reconcile.Begin[appsv1beta1.SidecarSet](ctx, p.Kube.API, name, owner)
	if err != nil || set == nil {
		return Outcome{}, err
	}

	begun := p.Kube.Now()
	snapshot, err := p.Kube.Snapshot(ctx, set)
	if err != nil {
		return Outcome{}, err
	}

	kept := p.memory.Of(owner)
	snapshot.Now, snapshot.Features, snapshot.Known = now, p.Features, &kept.known
	plan := sidecarset.Make(*snapshot)
	planning := p.Kube.Now().Sub(begun)
	if after, err := p.overtaken(ctx, plan); err != nil || after > 0 {
		return Outcome{After: after}, err
	}

	result := p.Applier.Apply(ctx, plan)
	snapshot.Known.Learn(plan, result.Tried, p.Kube.Now())
	p.announce(plan)
	outcome := Outcome{Plan: plan, Planning: planning, Done: result.Done, After: plan.Again,
		Tell: p.stillness(plan, result)}
	if slices.ContainsFunc(plan.Verdicts,
		func(v *sidecarset.PodVerdict) bool { return v.Reason == sidecarset.ReasonMetadata }) {
		reconcile.MinRequeue(&outcome.After, mendedAfter)
	}
	reconcile.MinRequeue(&outcome.After, p.Kube.Own.Again(owner))
	if result.Retry {
		reconcile.MinRequeue(&outcome.After, reconcile.RetryAfter)
	}
	if result.NoRevision {
		return outcome, result.Err
	}

	after, err := kept.status.Write(ctx, p.Kube.For(owner), set, &set.Status, &plan.Status, onlyNumbers(plan))
	reconcile.MinRequeue(&outcome.After, after)
	return outcome, errors.Join(result.Err, err)
}

// overtaken tells that the SidecarSet is not as the cache has it, before pods are upgraded, and when to come
// back then. Caches of pods and of SidecarSets lag apart, and webhooks may have known a change before; a pod
// that has what that gives must not be taken back. One live read tells, which the next plan is made from. One
// that does not exist any more upgrades nothing, and the next plan waits for the cache to show that.
func (p *Pass) overtaken(ctx context.Context, plan *sidecarset.Plan) (after time.Duration, err error) {
	if !slices.ContainsFunc(plan.Verdicts,
		func(v *sidecarset.PodVerdict) bool { return v.Action == sidecarset.Upgrade }) {
		return 0, nil
	}

	set, now := plan.SidecarSet, &appsv1beta1.SidecarSet{}
	if err := p.Kube.For(set.UID).Read(ctx,
		types.NamespacedName{Name: set.Name}, now); client.IgnoreNotFound(err) != nil {
		return 0, err
	}

	switch {
	case now.UID != set.UID: // it is gone, and maybe another of its name has come
		p.Forget(set.UID)
		return reconcile.RetryAfter, nil
	case now.Generation != set.Generation || !maps.Equal(now.Annotations, set.Annotations):
		return time.Millisecond, nil
	}

	return 0, nil
}

// Forget drops what is remembered of a SidecarSet that is gone.
func (p *Pass) Forget(owner types.UID) {
	p.Kube.Own.Forget(owner)
	p.memory.Forget(owner)
}

// forgotten takes a SidecarSet that does not exist any more out of the conditions of its pods. Nothing else
// of them is touched.
func (p *Pass) forgotten(ctx context.Context, name string) (Outcome, error) {
	pods, err := p.Kube.Injected(name, "")
	if err != nil {
		return Outcome{}, err
	}

	plan := &sidecarset.Plan{SidecarSet: &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	for _, pod := range pods {
		if readiness.Active(pod) && sidecarset.Lists(pod, name) {
			plan.Verdicts = append(plan.Verdicts,
				&sidecarset.PodVerdict{Pod: pod, Action: sidecarset.Keep, Forget: true})
		}
	}

	result := p.Applier.Apply(ctx, plan)
	p.Kube.Own.Forget("") // a conflict is all that comes of a cache that lags
	outcome := Outcome{}
	if result.Retry {
		reconcile.MinRequeue(&outcome.After, reconcile.RetryAfter)
	}

	return outcome, result.Err
}

// onlyNumbers tells whether nothing of the status but numbers of pods changes.
func onlyNumbers(plan *sidecarset.Plan) bool {
	old := plan.SidecarSet.Status
	old.MatchedPods, old.UpdatedPods, old.ReadyPods, old.UpdatedReadyPods =
		plan.Status.MatchedPods, plan.Status.UpdatedPods, plan.Status.ReadyPods, plan.Status.UpdatedReadyPods
	return equality.Semantic.DeepEqual(old, plan.Status)
}
