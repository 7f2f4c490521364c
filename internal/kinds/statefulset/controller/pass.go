package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
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

// Outcome is what a pass did, with the plan that was carried out; nil if there was nothing to plan, or not
// yet.
type Outcome struct {
	podapply.Outcome
	Plan *statefulset.Plan
}

// memory is what a pass keeps of a set for the next ones.
type memory struct {
	podapply.Memory
	status   reconcile.StatusThrottle
	failures podapply.Failures
}

// Run makes one pass over a set: it plans, applies, and writes the status last (ASTS-115, ASTS-117). An error
// means that something failed that trying again may mend; it is on the set's conditions and events too.
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
	snapshot.FailedUntil = kept.failures.Until(set.Generation, now)
	plan := statefulset.Make(*snapshot)
	planning := p.Kube.Now().Sub(begun)
	applying := p.applying(plan)
	result := applying.apply(ctx)
	kept.announce(applying, snapshot.GrowthError)
	for deleted, i := result.Deleted(), 0; i < len(plan.Ended); i++ {
		if pod := plan.Ended[i]; deleted[pod.UID] {
			kept.failures.Learn(set.Generation, pod.Name, p.Kube.Now())
		}
	}
	progress := waiting.Progress{Arrived: int(plan.Status.AvailableReplicas + plan.Status.UpdatedAvailableReplicas), Complete: plan.Settled()}
	outcome, err := kept.Finish(applying.Application, result, planning, progress, func() (time.Duration, error) {
		status, changed := plan.FinalStatus(result.ScaleError, result.UpdateError, p.Kube.Now())
		if !changed || plan.NewRevision != nil && result.Retry { // what this pass has outdated itself is written by the next one
			return 0, nil
		}
		return kept.status.Write(ctx, applying.Writer, set, &set.Status, status, statefulset.OnlyNumbers(&set.Status, status))
	})
	return Outcome{outcome, plan}, err
}

// Forget drops what is remembered of a set that is gone.
func (p *Pass) Forget(owner types.UID) {
	p.Kube.Own.Forget(owner)
	p.memory.Forget(owner)
}

// announce records what the plan itself has to say, when it changes. growth is why claims could not be grown
// a moment ago.
func (m *memory) announce(a *application, growth string) {
	plan := a.plan
	updates := plan.UpdateError
	if plan.ClaimsFixed != "" || updates == plan.GrowthFailed || updates == growth {
		updates = "" // it has an event of its own
	}
	m.Once(a.Application, corev1.EventTypeWarning, "FailedUpdatePodInPlace", updates)   // ASTS-095, ASTS-162
	m.Once(a.Application, corev1.EventTypeWarning, "FailedCreate", plan.Refusal)        // ASTS-106
	m.Once(a.Application, corev1.EventTypeWarning, "FailedUpdatePVC", plan.ClaimsFixed) // ASTS-275
	m.Once(a.Application, corev1.EventTypeWarning, "FailedResize", plan.GrowthFailed)   // ASTS-277
	m.Once(a.Application, corev1.EventTypeNormal, "WaitingForClaims", plan.ClaimsAwaited)
	m.Once(a.Application, corev1.EventTypeWarning, "ScaleUpLimited", plan.ScaleLimited)
}
