package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Apply implements podapply.Kind.
func (k *Kind) Apply(ctx context.Context, s *session) *podapply.Result {
	result := apply(ctx, s)
	announce(s)
	for deleted, i := result.Deleted(), 0; i < len(s.Plan.Ended); i++ {
		if pod := s.Plan.Ended[i]; deleted[pod.UID] {
			s.Kept.failures.Learn(s.Object.Generation, pod.Name, s.Now())
		}
	}
	return result
}

func apply(ctx context.Context, s *session) *podapply.Result {
	result := &podapply.Result{}
	// ASTS-071
	result.Add(&result.UpdateError, s.AdoptRevisions(ctx, s.Plan.AdoptRevisions, s.Plan.OwnerOfRevisions()))
	left, ok := s.Revisions(ctx, result)
	if !ok {
		return result
	}
	result.Add(&result.PullError, s.PreDownload(ctx, left))
	owners(ctx, s, result)
	s.CreateClaims(ctx, s.Plan.CreateClaims, result)
	s.GrowClaims(ctx, s.Plan.Growth, podapply.GrowthWords{Grown: "SuccessfulResize", Failed: "FailedResize",
		Annotations: map[string]any{pub.OwnedByStatefulSet: s.Plan.Set.Name}}, result)
	result.Add(&result.UpdateError, result.GrowthError)
	s.Pods(ctx, result, s.Plan.Create)
	s.History(ctx, result)
	return result
}

// owners gives PVCs the owners of the retention policy. A spec that is not the newest may say that PVCs go
// which are to stay, and one that lost its owner because the set is deleted without its pods must not get it
// back.
func owners(ctx context.Context, s *session, result *podapply.Result) {
	if len(s.Plan.ClaimOwners) == 0 {
		return
	}
	if err := s.Lives(ctx); err != nil {
		result.Add(&result.ScaleError, err)
		return
	}
	errs := s.InTime(ctx, result, len(s.Plan.ClaimOwners), func(i int) error {
		change := s.Plan.ClaimOwners[i]
		owners := change.Owners
		if owners == nil {
			owners = []metav1.OwnerReference{}
		}
		_, err := reconcile.Merge(ctx, s.Writer, change.Claim, map[string]any{"ownerReferences": owners}, nil, "")
		if err = reconcile.StaleIfNotFound(err); err != nil && !reconcile.IsStalePlan(err) {
			s.Warn("FailedUpdate", "failed to change the owners of claim %s: %v", change.Claim.Name, err)
			return fmt.Errorf("changing the owners of claim %s: %w", change.Claim.Name, err)
		}
		return err
	})
	result.Unfinished = result.Unfinished || slices.Contains(errs, nil) // pods that go wait for their claims' owners
	result.Add(&result.ScaleError, errors.Join(errs...))
}
