package podapply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// HandOver makes the pod the controller of the claims, so that they are deleted with the pod. It does not
// block the deletion of the pod: that would need permission for the finalizers of pods, and have no benefit.
// The pod must exist. Another manager may have deleted it and given its claims to its successor, and HandOver
// would then lose them to a controller that is gone.
func (a *Execution) HandOver(
	ctx context.Context, pod *corev1.Pod, claims ...*corev1.PersistentVolumeClaim,
) error {
	if len(claims) == 0 {
		return nil
	}

	now := &corev1.Pod{}
	switch err := a.Read(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, now); {
	case apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID:
		return reconcile.ErrStalePlan
	case err != nil:
		return fmt.Errorf("reading pod %s, to hand claim %s to it: %w", pod.Name, claims[0].Name, err)
	}

	yes := true
	for _, claim := range claims {
		if err := a.Control(
			ctx, claim,
			metav1.OwnerReference{
				APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes,
			},
			fmt.Sprintf("to hand claim %s to pod %s", claim.Name, pod.Name),
		); err != nil {
			return err
		}
	}

	return nil
}

// Control replaces the controller of a claim and keeps its other owners. what describes the purpose in errors
// and events.
func (a *Execution) Control(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, controller metav1.OwnerReference, what string,
) error {
	owners := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(owner metav1.OwnerReference) bool {
		return owner.Controller != nil && *owner.Controller || owner.UID == controller.UID
	})

	switch _, err := reconcile.Merge(ctx, a.Writer, claim, map[string]any{
		"ownerReferences": append(owners, controller),
	}, nil, ""); {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return reconcile.ErrStalePlan
	case err != nil:
		a.Warn("FailedUpdate", "failed %s: %v", what, err)
		return fmt.Errorf("failed %s: %w", what, err)
	}
	return nil
}

// checkClaimStays makes sure that a claim that a new pod takes over will not be deleted. A former manager may
// have handed it to the earlier pod of that name, with which it goes. Other owners do not matter.
func (a *Execution) checkClaimStays(ctx context.Context, name, pod string) error {
	claim := &corev1.PersistentVolumeClaim{}
	if err := a.Read(ctx, types.NamespacedName{
		Namespace: a.owner.GetNamespace(), Name: name,
	}, claim); err != nil {
		return reconcile.StaleIfNotFound(
			fmt.Errorf("reading claim %s, which a new pod takes over: %w", name, err))
	}
	if claim.DeletionTimestamp != nil ||
		slices.ContainsFunc(claim.OwnerReferences, func(owner metav1.OwnerReference) bool {
			return owner.Kind == "Pod" && (owner.Name == pod || owner.Controller != nil && *owner.Controller)
		}) {
		// The next plan includes what was read.
		return reconcile.ErrStalePlan
	}

	return nil
}

// checkClaimsKept makes sure that no claim that is to be kept is deleted with the pod: a former manager may
// have handed it over, and the caches of claims lag on their own.
func (a *Execution) checkClaimsKept(ctx context.Context, v *podplan.Verdict) error {
	for _, name := range v.Kept {
		claim := &corev1.PersistentVolumeClaim{}
		err := a.Read(ctx, types.NamespacedName{Namespace: v.Pod.Namespace, Name: name}, claim)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("reading claim %s, which stays when pod %s goes: %w", name, v.Pod.Name, err)
		case claim.DeletionTimestamp == nil && slices.ContainsFunc(claim.OwnerReferences,
			func(owner metav1.OwnerReference) bool { return owner.UID == v.Pod.UID }):
			return reconcile.ErrStalePlan // the next plan includes what was read
		}
	}

	return nil
}

// CreateClaims creates PVCs that pods wait for. A claim that exists already counts as created.
func (a *Execution) CreateClaims(ctx context.Context, creations []podplan.Creation, result *Result) {
	result.Add(&result.ScaleError, errors.Join(a.InTime(ctx, result, len(creations), func(i int) error {
		return a.createClaims(ctx, creations[i], false)
	})...))
}

// createClaims creates the PVCs of a new pod, as many as can be created. An existing claim is kept. If look
// is true, an existing claim that is about to be deleted stops the pod from taking it over.
func (a *Execution) createClaims(ctx context.Context, creation podplan.Creation, look bool) error {
	errs := make([]error, len(creation.Claims))
	for i, document := range creation.Claims {
		claim := &corev1.PersistentVolumeClaim{}
		switch err := reconcile.Denied(a.Create(ctx, document, claim)); {
		case err == nil:
		case apierrors.IsAlreadyExists(err):
			if look {
				errs[i] = a.checkClaimStays(ctx, claim.Name, creation.Name)
			}
		case reconcile.IsNamespaceTerminating(err):
			return errEnding
		default:
			a.Warn("FailedCreate", "failed to create claim %s: %v", claim.Name, err)
			errs[i] = fmt.Errorf("creating claim %s: %w", claim.Name, err)
		}
	}

	return errors.Join(errs...)
}

// GrowthWords defines how the growth of PVCs is reported, and what is written with it.
type GrowthWords struct {
	// Grown and Failed are the reasons of the events.
	Grown, Failed string
	// Annotations are set on a PVC that grows.
	Annotations map[string]any
}

// GrowClaims requests more storage for claims. If a StorageClass does not allow expansion, the API server
// refuses the request; the event and the condition contain its message. It would refuse the other PVCs of the
// same template, too, so they are left to the next attempt. The failure is recorded as the result's
// GrowthError; the kind decides to which condition it belongs.
func (a *Execution) GrowClaims(
	ctx context.Context, growths []podplan.Growth, words GrowthWords, result *Result,
) {
	result.Grew = len(growths) > 0
	end, refused := a.Now().Add(passTime), map[string]bool{}
	for _, growth := range growths {
		if a.Now().After(end) {
			result.Unfinished = true
			return
		}

		claim, of := growth.Claim, ""
		if growth.Pod != "" {
			of = " of pod " + growth.Pod
		}
		if refused[growth.Template] {
			continue
		}

		var metadata map[string]any
		if len(words.Annotations) > 0 {
			metadata = map[string]any{"annotations": words.Annotations}
		}
		_, err := reconcile.Merge(ctx, a.Writer, claim, metadata, map[string]any{
			"spec": map[string]any{"resources": map[string]any{
				"requests": map[string]any{string(corev1.ResourceStorage): growth.Storage.String()},
			}},
		}, "")
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			result.Retry = true
			continue
		}

		if err != nil {
			refused[growth.Template] = true
			if reconcile.Refused(err) {
				result.refused(claim.UID, "")
			}
			a.Warn(words.Failed, "failed to grow claim %s%s to %s: %v",
				claim.Name, of, growth.Storage.String(), err)
			result.GrowthError = errors.Join(result.GrowthError,
				fmt.Errorf("growing claim %s to %s: %w", claim.Name, growth.Storage.String(), err))
			continue
		}

		a.Say(words.Grown, "claim %s%s asks for %s now", claim.Name, of, growth.Storage.String())
	}
}
