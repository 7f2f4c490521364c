package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Kind is what StatefulSets do their own way; [podapply.Controller] does everything else.
type Kind struct {
	*Kube
	Features statefulset.Features
}

type (
	// Controller brings StatefulSets a step further.
	Controller = podapply.Controller[*appsv1beta1.StatefulSet, *statefulset.Plan, kept]
	session    = podapply.Session[*appsv1beta1.StatefulSet, *statefulset.Plan, kept]
)

// kept is what is kept of a set between passes, beside what is kept of every workload.
type kept struct {
	failures podapply.Failures
	// growth is why claims could not be grown a moment ago, as the last plan knew it.
	growth string
}

// New returns a controller that reads and writes through the API of the kind.
func New(kind *Kind, events reconcile.Recorder) *Controller {
	return podapply.New(kind.API, events, kind)
}

// Plan implements podapply.Kind.
func (k *Kind) Plan(ctx context.Context, s *session, now time.Time) (*statefulset.Plan, error) {
	snapshot, err := k.Snapshot(ctx, s.Object, k.Features)
	if err != nil {
		return nil, err
	}
	snapshot.Now = now
	s.HoldBack(&snapshot.Snapshot, s.Object.Generation)
	snapshot.FailedUntil = s.Kept.failures.Until(s.Object.Generation, now)
	s.Kept.growth = snapshot.GrowthError
	return statefulset.Make(*snapshot), nil
}

// Progress implements podapply.Kind.
func (k *Kind) Progress(plan *statefulset.Plan) waiting.Progress {
	return waiting.Progress{
		Arrived:  int(plan.Status.AvailableReplicas + plan.Status.UpdatedAvailableReplicas),
		Complete: plan.Settled(),
	}
}

// Status implements podapply.Kind.
func (k *Kind) Status(s *session, result *podapply.Result, now time.Time) (any, bool) {
	status, changed := s.Plan.FinalStatus(result.ScaleError, result.UpdateError, now)
	if !changed {
		return nil, false
	}
	return status, statefulset.OnlyNumbers(&s.Object.Status, status)
}

// Fields implements podapply.Kind.
func (k *Kind) Fields(set *appsv1beta1.StatefulSet) podapply.Fields {
	return podapply.Fields{
		Selector: set.Spec.Selector, Status: &set.Status, Collisions: &set.Status.CollisionCount,
	}
}

// announce records what the plan itself has to say, when it changes. growth is why claims could not be grown
// a moment ago.
func announce(s *session) {
	plan := s.Plan
	updates := plan.UpdateError
	if plan.ClaimsFixed != "" || updates == plan.GrowthFailed || updates == s.Kept.growth {
		updates = "" // it has an event of its own
	}
	s.Once(corev1.EventTypeWarning, "FailedUpdatePodInPlace", updates)   // ASTS-095, ASTS-162
	s.Once(corev1.EventTypeWarning, "FailedCreate", plan.Refusal)        // ASTS-106
	s.Once(corev1.EventTypeWarning, "FailedUpdatePVC", plan.ClaimsFixed) // ASTS-275
	s.Once(corev1.EventTypeWarning, "FailedResize", plan.GrowthFailed)   // ASTS-277
	s.Once(corev1.EventTypeNormal, "WaitingForClaims", plan.ClaimsAwaited)
	s.Once(corev1.EventTypeWarning, "ScaleUpLimited", plan.ScaleLimited)
}
