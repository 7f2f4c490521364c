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
	controller
	Kube     *Kube
	Applier  Applier
	Features sidecarset.Features
}

type (
	controller = reconcile.Controller[*appsv1beta1.SidecarSet, memory]
	session    = reconcile.Session[*appsv1beta1.SidecarSet, memory]
)

// New returns a Pass that reads and writes through the API of kube.
func New(kube *Kube, features sidecarset.Features, events reconcile.Recorder) *Pass {
	return &Pass{
		controller: controller{API: kube.API, Events: events, AtMost: pauseAtMost},
		Kube:       kube, Features: features, Applier: Applier{API: kube.API, Events: events},
	}
}

// memory is what a pass keeps about a SidecarSet for later passes.
type memory struct {
	// known is what plans have found out about pods.
	known sidecarset.Knowledge
	// waits records since when the SidecarSet has not moved.
	waits waiting.Tracker
}

// Outcome is the outcome of a pass.
type Outcome struct {
	// Plan is the plan that was applied. It is nil if there was nothing to plan, or not yet.
	Plan *sidecarset.Plan
	// Done is how many pods were upgraded or reset.
	Done map[sidecarset.Action]int
	// Planning is how long planning took.
	Planning time.Duration
	// After is when to run again even if nothing happens. 0 means never.
	After time.Duration
	// Tell is when to run again only to report that nothing has moved. 0 means never (OPS-099).
	Tell time.Duration
}

// mendedAfter is when to look again at pods with an annotation that cannot be merged, because changes of such
// annotations cause no events.
const mendedAfter = time.Minute

// Run makes one pass: it plans, applies the plan, and writes the status last (SS-192).
func (p *Pass) Run(ctx context.Context, name types.NamespacedName, owner types.UID) (Outcome, error) {
	if owner == "" {
		return p.absent(ctx, name)
	}
	s, err := p.Begin(ctx, name, owner)
	if err != nil || s == nil {
		return Outcome{}, err
	}
	return p.run(ctx, s)
}

func (p *Pass) run(ctx context.Context, s *session) (Outcome, error) {
	begun := s.Now()
	snapshot, err := p.Kube.Snapshot(ctx, s.Object)
	if err != nil {
		return Outcome{}, err
	}

	snapshot.Now, snapshot.Features, snapshot.Known = s.Begun, p.Features, &s.Kept.known
	plan := sidecarset.Make(*snapshot)
	planning := s.Now().Sub(begun)
	if after, err := overtaken(ctx, s, plan); err != nil || after > 0 {
		return Outcome{After: after}, err
	}

	result := p.Applier.Apply(ctx, plan)
	snapshot.Known.Learn(plan, result.Tried, s.Now())
	announce(s, plan)
	outcome := Outcome{Plan: plan, Planning: planning, Done: result.Done, After: plan.Again,
		Tell: stillness(s, plan, result)}
	if slices.ContainsFunc(plan.Verdicts,
		func(v *sidecarset.PodVerdict) bool { return v.Reason == sidecarset.ReasonMetadata }) {
		reconcile.MinRequeue(&outcome.After, mendedAfter)
	}
	reconcile.MinRequeue(&outcome.After, s.Again())
	if result.Retry {
		reconcile.MinRequeue(&outcome.After, reconcile.RetryAfter)
	}
	if result.NoRevision {
		return outcome, result.Err
	}

	after, err := s.WriteStatus(ctx, &s.Object.Status, &plan.Status, onlyNumbers(plan))
	reconcile.MinRequeue(&outcome.After, after)
	return outcome, errors.Join(result.Err, err)
}

// overtaken checks, before pods are upgraded, whether the cached SidecarSet is stale, and if so returns when
// to run again. The caches of pods and of SidecarSets lag independently, and webhooks may have seen a change
// earlier. A pod that already has the change must not be reverted. One live read decides, and the next plan
// is made from it. A SidecarSet that no longer exists upgrades nothing, and the next plan waits for the cache
// to show this.
func overtaken(
	ctx context.Context, s *session, plan *sidecarset.Plan,
) (after time.Duration, err error) {
	if !slices.ContainsFunc(plan.Verdicts,
		func(v *sidecarset.PodVerdict) bool { return v.Action == sidecarset.Upgrade }) {
		return 0, nil
	}

	set, now := s.Object, &appsv1beta1.SidecarSet{}
	if err := s.Read(ctx, s.Name, now); client.IgnoreNotFound(err) != nil {
		return 0, err
	}

	switch {
	case now.UID != set.UID: // it is gone, and another one of its name may exist
		s.Own.Forget(set.UID)
		s.Forget()
		return reconcile.RetryAfter, nil
	case now.Generation != set.Generation || !maps.Equal(now.Annotations, set.Annotations):
		return time.Millisecond, nil
	}

	return 0, nil
}

// absent removes a SidecarSet that no longer exists from the conditions of its pods. Nothing else in the pods
// is changed.
func (p *Pass) absent(ctx context.Context, name types.NamespacedName) (Outcome, error) {
	pods, err := p.Kube.Injected(name.Name, "")
	if err != nil {
		return Outcome{}, err
	}

	plan := &sidecarset.Plan{SidecarSet: &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name.Name}}}
	for _, pod := range pods {
		if readiness.Active(pod) && sidecarset.Lists(pod, name.Name) {
			plan.Verdicts = append(plan.Verdicts,
				&sidecarset.PodVerdict{Pod: pod, Action: sidecarset.Keep, Forget: true})
		}
	}

	result := p.Applier.Apply(ctx, plan)
	p.Kube.Own.Forget("") // a stale cache causes no more than a conflict
	outcome := Outcome{}
	if result.Retry {
		reconcile.MinRequeue(&outcome.After, reconcile.RetryAfter)
	}

	return outcome, result.Err
}

// onlyNumbers reports whether the status changes only in numbers of pods.
func onlyNumbers(plan *sidecarset.Plan) bool {
	old := plan.SidecarSet.Status
	old.MatchedPods, old.UpdatedPods, old.ReadyPods, old.UpdatedReadyPods =
		plan.Status.MatchedPods, plan.Status.UpdatedPods, plan.Status.ReadyPods, plan.Status.UpdatedReadyPods
	return equality.Semantic.DeepEqual(old, plan.Status)
}
