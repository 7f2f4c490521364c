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
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
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

// deleteClaim deletes a claim that has no pod. The caches of claims and of pods lag by themselves, and an answer may have been lost while a
// pod was created: only the API server can say that there is none.
func (a *application) deleteClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	err := a.Read(ctx, types.NamespacedName{Namespace: a.plan.Set.Namespace, Name: a.plan.Set.Name + "-" +
		claim.Labels[pub.CloneSetInstanceID]}, &corev1.Pod{})
	switch {
	case err == nil:
		return reconcile.ErrChanged // the next plan knows of it
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("looking for the pod of claim %s: %w", claim.Name, err)
	}
	switch err := a.Delete(ctx, claim); {
	case apierrors.IsConflict(err):
		return reconcile.ErrChanged
	case err != nil:
		a.Warn("FailedDelete", "failed to delete claim %s: %v", claim.Name, err)
		return fmt.Errorf("deleting claim %s: %w", claim.Name, err)
	}
	a.Say("SuccessfulDelete", "deleted claim %s", claim.Name)
	return nil
}

// growClaims asks for more storage. A StorageClass that does not allow it makes the API server refuse; the event and the condition
// FailedScale carry its words. It refuses the other claims of the same template too: they are left to the next attempt.
func (a *application) growClaims(ctx context.Context, result *podapply.Result) {
	result.Grew = len(a.plan.ClaimGrowth) > 0
	refused := map[string]bool{}
	for _, growth := range a.plan.ClaimGrowth {
		if refused[growth.Template] {
			continue
		}
		claim := growth.Claim
		_, err := reconcile.Merge(ctx, a.Writer, claim, nil, map[string]any{"spec": map[string]any{"resources": map[string]any{
			"requests": map[string]any{string(corev1.ResourceStorage): growth.Storage.String()}}}}, "")
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			result.Retry = true
			continue
		}
		if err != nil {
			refused[growth.Template] = true
			if reconcile.Refused(err) {
				result.RefusedObjects = append(result.RefusedObjects, claim.UID)
			}
			a.Warn("FailedUpdate", "failed to grow claim %s to %s: %v", claim.Name, growth.Storage.String(), err)
			result.GrowthError = errors.Join(result.GrowthError,
				fmt.Errorf("growing claim %s to %s: %w", claim.Name, growth.Storage.String(), err))
			continue
		}
		a.Say("SuccessfulUpdate", "claim %s asks for %s now", claim.Name, growth.Storage.String())
	}
	result.Add(&result.ScaleError, result.GrowthError)
}
