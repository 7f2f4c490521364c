package podapply

import (
	"context"
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// adopt makes the owner the controller of a pod that has none.
func (a *Execution) adopt(ctx context.Context, v *podplan.Verdict) error {
	if err := a.Lives(ctx); err != nil {
		return err
	}
	if err := a.patch(ctx, v); err != nil {
		return err
	}
	a.Say("SuccessfulAdopt", "adopted pod %s", v.Pod.Name)
	return nil
}

// AdoptRevisions makes the owner the controller of revisions that have none, so that they go with it
// (ASTS-071).
func (a *Execution) AdoptRevisions(
	ctx context.Context, revisions []*appsv1.ControllerRevision, owner metav1.OwnerReference,
) error {
	if len(revisions) == 0 {
		return nil
	}
	if err := a.Lives(ctx); err != nil {
		return err
	}

	for _, r := range revisions {
		if _, err := reconcile.Merge(ctx, a.Writer, r, map[string]any{
			"ownerReferences": append(
				r.OwnerReferences[:len(r.OwnerReferences):len(r.OwnerReferences)], owner),
		}, nil, ""); err != nil {
			return reconcile.StaleIfNotFound(fmt.Errorf("adopting revision %s: %w", r.Name, err))
		}
	}

	return nil
}

// Lives makes sure that the owner exists in the API server, with the spec that the plan was made for, and is
// not being deleted: objects that get it as their owner go with it. It asks once per plan.
func (a *Execution) Lives(ctx context.Context) error {
	a.owned.Do(func() {
		now := reflect.New(reflect.TypeOf(a.owner).Elem()).Interface().(client.Object)
		err := a.Live.Get(ctx, client.ObjectKeyFromObject(a.owner), now)
		switch {
		case err != nil:
			a.ownerErr = reconcile.StaleIfNotFound(fmt.Errorf(
				"reading %s from the API server, before anything becomes its own: %w",
				a.owner.GetName(), err))
		case now.GetUID() != a.owner.GetUID() || now.GetGeneration() != a.owner.GetGeneration() ||
			now.GetDeletionTimestamp() != nil:
			a.ownerErr = reconcile.ErrStalePlan
		}
	})

	return a.ownerErr
}

// ownsExisting reports whether an existing pod with the name of a pod to be created belongs to the owner: an
// answer was lost, or a former manager created the pod. The next plan includes the pod that was read, whoever
// owns it.
func (a *Execution) ownsExisting(ctx context.Context, name string) bool {
	pod := &corev1.Pod{}
	if err := a.Read(ctx, types.NamespacedName{
		Namespace: a.owner.GetNamespace(), Name: name,
	}, pod); err != nil {
		return apierrors.IsNotFound(err) // it is gone by now
	}
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && controller.UID == a.owner.GetUID()
}
