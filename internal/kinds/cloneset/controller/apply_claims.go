package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// claims carries out what is planned for claims without an active pod.
func (a *application) claims(ctx context.Context) error {
	var errs error
	for _, fate := range a.plan.ClaimFates {
		var err error
		switch {
		case fate.HandTo != nil:
			err = a.HandOver(ctx, fate.HandTo, fate.Claim)
		case fate.TakeBack:
			err = a.Control(ctx, fate.Claim, cloneset.Reference(a.plan.Set), "to take back claim "+fate.Claim.Name)
		default:
			err = a.deleteClaim(ctx, fate.Claim)
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

// deleteClaim deletes a claim that has no pod. The caches of claims and of pods lag by themselves, and an
// answer may have been lost while a pod was created: only the API server can say that there is none.
func (a *application) deleteClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	err := a.Read(ctx, types.NamespacedName{Namespace: a.plan.Set.Namespace, Name: a.plan.Set.Name + "-" +
		claim.Labels[pub.CloneSetInstanceID]}, &corev1.Pod{})
	switch {
	case err == nil:
		return reconcile.ErrStalePlan // the next plan knows of it
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("looking for the pod of claim %s: %w", claim.Name, err)
	}
	switch err := a.Delete(ctx, claim); {
	case apierrors.IsConflict(err):
		return reconcile.ErrStalePlan
	case err != nil:
		a.Warn("FailedDelete", "failed to delete claim %s: %v", claim.Name, err)
		return fmt.Errorf("deleting claim %s: %w", claim.Name, err)
	}
	a.Say("SuccessfulDelete", "deleted claim %s", claim.Name)
	return nil
}
