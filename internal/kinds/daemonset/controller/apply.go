package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Apply implements podapply.Kind.
func (k *Kind) Apply(ctx context.Context, s *session) *podapply.Result {
	result := apply(ctx, s)
	result.Add(&result.UpdateError, s.Kept.incomplete)
	announce(s)
	learn(s, result)
	return result
}

func apply(ctx context.Context, s *session) *podapply.Result {
	result := &podapply.Result{}
	if s.Plan.SelectsAll {
		return result
	}
	owner := *metav1.NewControllerRef(s.Plan.Set, appsv1beta1.GroupVersion.WithKind(kind))
	result.Add(&result.UpdateError, s.AdoptRevisions(ctx, s.Plan.AdoptRevisions, owner)) // ADS-046
	left, ok := s.Revisions(ctx, result)
	if !ok {
		return result
	}
	result.Add(&result.PullError, s.PreDownload(ctx, left))
	s.Pods(ctx, result, s.Plan.Create)
	s.History(ctx, result)
	result.Unfinished = result.Unfinished || s.Plan.More && (len(result.Done) > 0 || result.Created > 0)
	return result
}
