package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Pass brings one CloneSet a step further.
type Pass struct {
	Kube     *Kube
	Applier  podapply.Applier
	Features cloneset.Features
	Random   func(n int) int

	memory reconcile.Memory[memory]
}

// Outcome is what a pass did, with the plan that was carried out; nil if there was nothing to plan, or not
// yet.
type Outcome struct {
	podapply.Outcome
	Plan *cloneset.Plan
}

// memory is what a pass keeps of a set for the next ones.
type memory struct {
	podapply.Memory
	status reconcile.StatusThrottle
}

// Run makes one pass over a set: it plans, applies, and writes the status last (CS-070). An error means that
// something failed that trying again may mend; it is on the set's conditions and events too.
func (p *Pass) Run(ctx context.Context, name types.NamespacedName, owner types.UID) (Outcome, error) {
	now := p.Kube.Now()
	set, err := reconcile.Begin[appsv1beta1.CloneSet](ctx, p.Kube.API, name, owner)
	if err != nil || set == nil {
		return Outcome{}, err
	}
	begun := p.Kube.Now()
	snapshot, err := p.Kube.Snapshot(ctx, set)
	if err != nil {
		return Outcome{}, err
	}
	snapshot.Now, snapshot.Random, snapshot.Features = now, p.Random, p.Features
	kept := p.memory.Of(owner)
	kept.HoldBack(&snapshot.Snapshot, set.Generation)
	plan := cloneset.Make(*snapshot)
	planning := p.Kube.Now().Sub(begun)
	applying := p.applying(plan)
	result := applying.apply(ctx)
	kept.announce(applying)
	progress := waiting.Progress{Arrived: int(plan.Status.AvailableReplicas + plan.Status.UpdatedAvailableReplicas),
		Complete: int(plan.Status.AvailableReplicas) >= plan.Limits.Replicas &&
			plan.Status.UpdatedAvailableReplicas >= plan.Status.ExpectedUpdatedReplicas}
	outcome, err := kept.Finish(applying.Application, result, planning, progress, func() (time.Duration, error) {
		status, changed := plan.FinalStatus(result.ScaleError, result.UpdateError, p.Kube.Now())
		// what this pass has outdated itself is written by the next one
		if !changed || result.Pruned || plan.NewRevision != nil && result.Retry {
			return 0, nil
		}
		return kept.status.Write(ctx, applying.Writer, set, &set.Status, status, onlyNumbers(&set.Status, status))
	})
	return Outcome{outcome, plan}, err
}

// Forget drops what is remembered of a set that is gone.
func (p *Pass) Forget(owner types.UID) {
	p.Kube.Own.Forget(owner)
	p.memory.Forget(owner)
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
		next := cloneset.Condition(status, old.Conditions[i].Type)
		if next != nil && next.Type == appsv1beta1.CloneSetConditionProgressing && next.Status == old.Conditions[i].Status &&
			next.Reason == old.Conditions[i].Reason {
			old.Conditions[i] = *next
		}
	}
	return equality.Semantic.DeepEqual(*old, *status)
}

// announce records what the plan itself has to say: refusals when they change, throttled creation once for
// each state (CS-237).
func (m *memory) announce(a *application) {
	plan := a.plan
	if plan.UpdateError != "" {
		if previous := cloneset.Condition(&plan.Set.Status, appsv1beta1.CloneSetConditionFailedUpdate); previous == nil ||
			previous.Message != plan.UpdateError {
			a.Events.Event(plan.Set, corev1.EventTypeWarning, "FailedUpdatePodInPlace", plan.UpdateError)
		}
	}
	m.Once(a.Application, corev1.EventTypeWarning, "ScaleUpLimited", plan.ScaleLimited)
	m.Once(a.Application, corev1.EventTypeNormal, "WaitingForClaims", plan.ClaimsAwaited)
	m.Once(a.Application, corev1.EventTypeWarning, "ClaimsNotReused", plan.ClaimsNotReused)
	orphans := ""
	if len(plan.Orphans) > 0 {
		orphans = "pods that match the selector and belong to nobody are not adopted: " + plural.Few(plan.Orphans, 3) // CS-355
	}
	m.Once(a.Application, corev1.EventTypeWarning, "OrphanPods", orphans)
	m.Once(a.Application, corev1.EventTypeWarning, "ClaimNotResized", plan.ClaimsHeld)
}
