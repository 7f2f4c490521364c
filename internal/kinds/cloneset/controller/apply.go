package controller

import (
	"context"
	"fmt"

	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// application is the carrying out of the plan of a CloneSet.
type application struct {
	*podapply.Application
	plan *cloneset.Plan
}

// applying begins to carry out a plan.
func (p *Pass) applying(plan *cloneset.Plan) *application {
	a := &application{p.Applier.To(plan.Set, plan.Set.Spec.Selector, &plan.Plan), plan}
	a.Collided = a.collided
	return a
}

// apply carries out all of the plan but the status. It goes on with other pods where one fails.
func (a *application) apply(ctx context.Context) *podapply.Result {
	result := &podapply.Result{}
	left, ok := a.Revisions(ctx, result)
	if !ok {
		return result
	}
	result.Add(&result.PullError, a.PreDownload(ctx, left))
	result.Add(&result.ScaleError, a.claims(ctx))
	a.GrowClaims(ctx, a.plan.ClaimGrowth, podapply.GrowthWords{Grown: "SuccessfulUpdate", Failed: "FailedUpdate"}, result)
	result.Add(&result.ScaleError, result.GrowthError)
	a.Pods(ctx, result)
	if a.plan.PrunePodsToDelete {
		err := a.prune(ctx)
		result.Pruned = err == nil
		result.Add(&result.ScaleError, err)
	}
	a.History(ctx, result)
	return result
}

// collided raises the collision count (CS-084).
func (a *application) collided(ctx context.Context, count int32) error {
	status := a.plan.Set.Status.DeepCopy()
	status.CollisionCount = &count
	return a.PatchStatus(ctx, a.plan.Set, &a.plan.Set.Status, status)
}

func (a *application) prune(ctx context.Context) error {
	if _, err := reconcile.Merge(ctx, a.Writer, a.plan.Set, nil, map[string]any{
		"spec": map[string]any{"scaleStrategy": map[string]any{"podsToDelete": a.plan.PodsToDelete}}}, ""); err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("removing names from podsToDelete: %w", err))
	}
	return nil
}
