package podapply

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/reconcile"
)

// HandOver makes the pod the claim's controller, so that the claim goes when the pod goes. It does not block the pod's deletion: that would
// take a right on the finalizers of pods, and be of no use.
func (a *Application) HandOver(ctx context.Context, claim *corev1.PersistentVolumeClaim, pod *corev1.Pod) error {
	yes := true
	return a.Control(ctx, claim, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes},
		fmt.Sprintf("to hand claim %s to pod %s", claim.Name, pod.Name))
}

// Control replaces the controller of a claim; its other owners stay.
func (a *Application) Control(ctx context.Context, claim *corev1.PersistentVolumeClaim, controller metav1.OwnerReference,
	what string) error {
	owners := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(owner metav1.OwnerReference) bool {
		return owner.Controller != nil && *owner.Controller || owner.UID == controller.UID
	})
	switch _, err := reconcile.Merge(ctx, a.Writer, claim, map[string]any{"ownerReferences": append(owners, controller)}, nil, ""); {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return reconcile.ErrChanged
	case err != nil:
		a.Warn("FailedUpdate", "failed %s: %v", what, err)
		return fmt.Errorf("failed %s: %w", what, err)
	}
	return nil
}
