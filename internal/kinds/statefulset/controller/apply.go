package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// application is the carrying out of the plan of a StatefulSet.
type application struct {
	*podapply.Application
	plan *statefulset.Plan
}

func (p *Pass) applying(plan *statefulset.Plan) *application {
	a := &application{p.Applier.To(plan.Set, plan.Set.Spec.Selector, &plan.Plan), plan}
	a.Collided = a.collided
	return a
}

// apply carries out all of the plan but the status. It goes on with other pods where one fails.
func (a *application) apply(ctx context.Context) *podapply.Result {
	result := &podapply.Result{}
	// ASTS-071
	result.Add(&result.UpdateError, a.AdoptRevisions(ctx, a.plan.AdoptRevisions, a.plan.OwnerOfRevisions()))
	left, ok := a.Revisions(ctx, result)
	if !ok {
		return result
	}
	result.Add(&result.PullError, a.PreDownload(ctx, left))
	a.owners(ctx, result)
	a.CreateClaims(ctx, a.plan.CreateClaims, result)
	a.GrowClaims(ctx, a.plan.Growth, podapply.GrowthWords{Grown: "SuccessfulResize", Failed: "FailedResize",
		Annotations: map[string]any{pub.OwnedByStatefulSet: a.plan.Set.Name}}, result)
	result.Add(&result.UpdateError, result.GrowthError)
	a.Pods(ctx, result)
	a.History(ctx, result)
	return result
}

// collided raises the collision count (ASTS-084).
func (a *application) collided(ctx context.Context, count int32) error {
	status := a.plan.Set.Status.DeepCopy()
	status.CollisionCount = &count
	return a.PatchStatus(ctx, a.plan.Set, &a.plan.Set.Status, status)
}

// owners gives PVCs the owners of the retention policy. A spec that is not the newest may say that PVCs go
// which are to stay, and one that lost its owner because the set is deleted without its pods must not get it
// back.
func (a *application) owners(ctx context.Context, result *podapply.Result) {
	if len(a.plan.ClaimOwners) == 0 {
		return
	}
	if err := a.Lives(ctx); err != nil {
		result.Add(&result.ScaleError, err)
		return
	}
	errs := a.InTime(ctx, result, len(a.plan.ClaimOwners), func(i int) error {
		change := a.plan.ClaimOwners[i]
		owners := change.Owners
		if owners == nil {
			owners = []metav1.OwnerReference{}
		}
		_, err := reconcile.Merge(ctx, a.Writer, change.Claim, map[string]any{"ownerReferences": owners}, nil, "")
		if err = reconcile.StaleIfNotFound(err); err != nil && !reconcile.IsStalePlan(err) {
			a.Warn("FailedUpdate", "failed to change the owners of claim %s: %v", change.Claim.Name, err)
			return fmt.Errorf("changing the owners of claim %s: %w", change.Claim.Name, err)
		}
		return err
	})
	result.Unfinished = result.Unfinished || slices.Contains(errs, nil) // pods that go wait for their claims' owners
	result.Add(&result.ScaleError, errors.Join(errs...))
}
