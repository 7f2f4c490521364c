package controller

import (
	"context"
	"fmt"

	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Apply implements podapply.Kind.
func (k *Kind) Apply(ctx context.Context, s *session) *podapply.Result {
	result := apply(ctx, s)
	announce(s)
	return result
}

func apply(ctx context.Context, s *session) *podapply.Result {
	result := &podapply.Result{}
	left, ok := s.Revisions(ctx, result)
	if !ok {
		return result
	}

	result.Add(&result.PullError, s.PreDownload(ctx, left))
	result.Add(&result.ScaleError, claims(ctx, s))
	s.GrowClaims(ctx, s.Plan.ClaimGrowth,
		podapply.GrowthWords{Grown: "SuccessfulUpdate", Failed: "FailedUpdate"}, result)
	result.Add(&result.ScaleError, result.GrowthError)
	s.Pods(ctx, result, s.Plan.Create)
	if s.Plan.PrunePodsToDelete {
		err := prune(ctx, s)
		result.OwnerWritten = err == nil
		result.Add(&result.ScaleError, err)
	}
	s.History(ctx, result)
	return result
}

func prune(ctx context.Context, s *session) error {
	if _, err := reconcile.Merge(ctx, s.Writer, s.Plan.Set, nil, map[string]any{
		"spec": map[string]any{"scaleStrategy": map[string]any{"podsToDelete": s.Plan.PodsToDelete}}}, ""); err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("removing names from podsToDelete: %w", err))
	}
	return nil
}
