package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// Kind is what CloneSets do their own way; [podapply.Controller] does everything else.
type Kind struct {
	*Kube
	Features cloneset.Features
	Random   func(n int) int
}

type (
	// Controller brings CloneSets a step further.
	Controller = podapply.Controller[*appsv1beta1.CloneSet, *cloneset.Plan, kept]
	session    = podapply.Session[*appsv1beta1.CloneSet, *cloneset.Plan, kept]
	// kept is what is kept of a set between passes, beside what is kept of every workload: nothing.
	kept struct{}
)

// New returns a controller that reads and writes through the API of the kind.
func New(kind *Kind, events reconcile.Recorder) *Controller {
	return podapply.New(kind.API, events, kind)
}

// Plan implements podapply.Kind.
func (k *Kind) Plan(ctx context.Context, s *session, now time.Time) (*cloneset.Plan, error) {
	snapshot, err := k.Snapshot(ctx, s.Object)
	if err != nil {
		return nil, err
	}
	snapshot.Now, snapshot.Random, snapshot.Features = now, k.Random, k.Features
	s.HoldBack(&snapshot.Snapshot, s.Object.Generation)
	return cloneset.Make(*snapshot), nil
}

// Progress implements podapply.Kind.
func (k *Kind) Progress(plan *cloneset.Plan) waiting.Progress {
	status := &plan.Status
	return waiting.Progress{
		Arrived: int(status.AvailableReplicas + status.UpdatedAvailableReplicas),
		Complete: int(status.AvailableReplicas) >= plan.Limits.Replicas &&
			status.UpdatedAvailableReplicas >= status.ExpectedUpdatedReplicas,
	}
}

// Status implements podapply.Kind.
func (k *Kind) Status(s *session, result *podapply.Result, now time.Time) (any, bool) {
	status, changed := s.Plan.FinalStatus(result.ScaleError, result.UpdateError, now)
	if !changed {
		return nil, false
	}
	return status, onlyNumbers(&s.Object.Status, status)
}

// Fields implements podapply.Kind.
func (k *Kind) Fields(set *appsv1beta1.CloneSet) podapply.Fields {
	return podapply.Fields{
		Selector: set.Spec.Selector, Status: &set.Status, Collisions: &set.Status.CollisionCount,
	}
}

// onlyNumbers tells whether nothing but numbers of pods changes, and how far a rollout is, in words.
func onlyNumbers(from, status *appsv1beta1.CloneSetStatus) bool {
	old := from.DeepCopy()
	for _, numbers := range []func(*appsv1beta1.CloneSetStatus) *int32{
		func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.Replicas }, func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.ReadyReplicas },
		func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.AvailableReplicas }, func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.UpdatedReplicas },
		func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.UpdatedReadyReplicas }, func(s *appsv1beta1.CloneSetStatus) *int32 { return &s.UpdatedAvailableReplicas },
	} {
		*numbers(old) = *numbers(status)
	}
	for i := range old.Conditions {
		next := cloneset.Condition(status, old.Conditions[i].Type)
		if next != nil && next.Type == appsv1beta1.CloneSetConditionProgressing && next.Status == old.Conditions[i].Status &&
			next.Reason == old.Conditions[i].Reason {
			old.Conditions[i] = *next
		}
	}
	return equality.Semantic.DeepEqual(*old, *status)
}

// announce records what the plan itself has to say: refusals when they change, throttled creation once for
// each state (CS-237).
func announce(s *session) {
	plan := s.Plan
	if plan.UpdateError != "" {
		if previous := cloneset.Condition(&plan.Set.Status, appsv1beta1.CloneSetConditionFailedUpdate); previous == nil ||
			previous.Message != plan.UpdateError {
			s.Events.Event(plan.Set, corev1.EventTypeWarning, "FailedUpdatePodInPlace", plan.UpdateError)
		}
	}
	s.Once(corev1.EventTypeWarning, "ScaleUpLimited", plan.ScaleLimited)
	s.Once(corev1.EventTypeNormal, "WaitingForClaims", plan.ClaimsAwaited)
	s.Once(corev1.EventTypeWarning, "ClaimsNotReused", plan.ClaimsNotReused)
	orphans := ""
	if len(plan.Orphans) > 0 {
		orphans = "pods that match the selector and belong to nobody are not adopted: " + wording.Few(plan.Orphans, 3) // CS-355
	}
	s.Once(corev1.EventTypeWarning, "OrphanPods", orphans)
	s.Once(corev1.EventTypeWarning, "ClaimNotResized", plan.ClaimsHeld)
}
