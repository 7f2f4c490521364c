package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Pass brings one StatefulSet a step further.
type Pass struct {
	Kube     *Kube
	Applier  podapply.Applier
	Features statefulset.Features

	memory reconcile.Memory[memory]
}

// Outcome is what a pass did.
type Outcome struct {
	// Plan that was carried out; nil if there was nothing to plan, or not yet.
	Plan *statefulset.Plan
	// Planning is how long it took to make the plan.
	Planning time.Duration
	// After is when to come back although nothing happens; 0 means not at all.
	After time.Duration
	// Unfinished: there is more to be written at once.
	Unfinished bool
	// Done are the verdicts that were carried out, and Created is how many pods were created.
	Done    []*podplan.Verdict
	Created int
}

// memory is what a pass keeps of a set for the next ones.
type memory struct {
	podapply.Memory
	status reconcile.StatusPace
}

// Run makes one pass over a set: it plans, applies, and writes the status last (ASTS-115, ASTS-117). An error means that something
// failed that trying again may mend; it is on the set's conditions and events too.
func (p *Pass) Run(ctx context.Context, name types.NamespacedName, owner types.UID) (Outcome, error) {
	now := p.Kube.Now()
	set, err := reconcile.Begin[appsv1beta1.StatefulSet](ctx, p.Kube.API, name, owner)
	if err != nil || set == nil {
		return Outcome{}, err
	}
	begun := p.Kube.Now()
	snapshot, err := p.Kube.Snapshot(ctx, set, p.Features)
	if err != nil {
		return Outcome{}, err
	}
	snapshot.Now = now
	kept := p.memory.Of(owner)
	kept.HoldBack(&snapshot.Snapshot, set.Generation)
	plan := statefulset.Make(*snapshot)
	planning := p.Kube.Now().Sub(begun)
	applying := p.applying(plan)
	result := applying.apply(ctx)
	kept.announce(applying)
	outcome := Outcome{Plan: plan, Planning: planning, After: plan.After, Done: result.Done, Created: result.Created,
		Unfinished: result.Unfinished || plan.Probing && result.Created > 0 || len(plan.ClaimOwners) > 0}
	if outcome.Unfinished && (len(result.Done) > 0 || result.UpdateError == nil && result.ScaleError == nil) {
		outcome.After = time.Millisecond // else the back-off of the queue decides
	}
	reconcile.Sooner(&outcome.After, p.Kube.Own.Again(owner))
	after, tell := kept.Conclude(applying.Application, result, waiting.Progress{
		Arrived:  int(plan.Status.AvailableReplicas + plan.Status.UpdatedAvailableReplicas),
		Complete: plan.Settled(),
	})
	reconcile.Sooner(&outcome.After, after)
	reconcile.Sooner(&outcome.After, tell)
	status, changed := plan.FinalStatus(result.ScaleError, result.UpdateError, p.Kube.Now())
	if !changed || plan.NewRevision != nil && result.Retry { // what this pass has outdated itself is written by the next one
		return outcome, errors.Join(result.ScaleError, result.UpdateError)
	}
	after, err = kept.status.Write(ctx, applying.Writer, set, &set.Status, status, statefulset.OnlyNumbers(&set.Status, status))
	reconcile.Sooner(&outcome.After, after)
	return outcome, errors.Join(result.ScaleError, result.UpdateError, err)
}

// Forget drops what is remembered of a set that is gone.
func (p *Pass) Forget(owner types.UID) {
	p.Kube.Own.Forget(owner)
	p.memory.Forget(owner)
}

// announce records what the plan itself has to say, when it changes.
func (m *memory) announce(a *application) {
	plan := a.plan
	m.Once(a.Application, corev1.EventTypeWarning, "FailedUpdatePodInPlace", plan.UpdateError) // ASTS-162
	m.Once(a.Application, corev1.EventTypeWarning, "FailedCreate", plan.Refusal)               // ASTS-095, ASTS-106
	m.Once(a.Application, corev1.EventTypeWarning, "FailedUpdatePVC", plan.ClaimsFixed)        // ASTS-275
	m.Once(a.Application, corev1.EventTypeNormal, "WaitingForClaims", plan.ClaimsAwaited)
	m.Once(a.Application, corev1.EventTypeWarning, "ScaleUpLimited", plan.ScaleLimited)
}
