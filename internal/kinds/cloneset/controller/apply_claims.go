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
func claims(ctx context.Context, s *session) error {
	var errs error
	for _, fate := range s.Plan.ClaimFates {
		var err error
		switch {
		case fate.HandTo != nil:
			err = s.HandOver(ctx, fate.HandTo, fate.Claim)
		case fate.TakeBack:
			err = s.Control(ctx, fate.Claim, cloneset.Reference(s.Plan.Set), "to take back claim "+fate.Claim.Name)
		default:
			err = deleteClaim(ctx, s, fate.Claim)
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

// deleteClaim deletes a claim that has no pod. The caches of claims and of pods lag by themselves, and an
// answer may have been lost while a pod was created: only the API server can say that there is none.
func deleteClaim(ctx context.Context, s *session, claim *corev1.PersistentVolumeClaim) error {
	err := s.Read(ctx, types.NamespacedName{Namespace: s.Plan.Set.Namespace, Name: s.Plan.Set.Name + "-" +
		claim.Labels[pub.CloneSetInstanceID]}, &corev1.Pod{})
	switch {
	case err == nil:
		return reconcile.ErrStalePlan // the next plan knows of it
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("looking for the pod of claim %s: %w", claim.Name, err)
	}
	switch err := s.Delete(ctx, claim); {
	case apierrors.IsConflict(err):
		return reconcile.ErrStalePlan
	case err != nil:
		s.Warn("FailedDelete", "failed to delete claim %s: %v", claim.Name, err)
		return fmt.Errorf("deleting claim %s: %w", claim.Name, err)
	}
	s.Say("SuccessfulDelete", "deleted claim %s", claim.Name)
	return nil
}
