package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// application is the carrying out of the plan of a DaemonSet.
type application struct {
	*podapply.Application
	plan *daemonset.Plan
}

func (p *Pass) applying(plan *daemonset.Plan) *application {
	a := &application{p.Applier.To(plan.Set, plan.Set.Spec.Selector, &plan.Plan), plan}
	a.Collided = a.collided
	return a
}

// apply carries out all of the plan but the status. It goes on with other pods where one fails.
func (a *application) apply(ctx context.Context) *podapply.Result {
	result := &podapply.Result{}
	if a.plan.SelectsAll {
		return result
	}
	owner := *metav1.NewControllerRef(a.plan.Set, appsv1beta1.GroupVersion.WithKind(kind))
	result.Add(&result.UpdateError, a.AdoptRevisions(ctx, a.plan.AdoptRevisions, owner)) // ADS-046
	left, ok := a.Revisions(ctx, result)
	if !ok {
		return result
	}
	result.Add(&result.PullError, a.PreDownload(ctx, left))
	a.Pods(ctx, result)
	a.History(ctx, result)
	result.Unfinished = result.Unfinished || a.plan.More && (len(result.Done) > 0 || result.Created > 0)
	return result
}

// collided raises the collision count (ADS-064).
func (a *application) collided(ctx context.Context, count int32) error {
	status := a.plan.Set.Status.DeepCopy()
	status.CollisionCount = &count
	return a.PatchStatus(ctx, a.plan.Set, &a.plan.Set.Status, status)
}
