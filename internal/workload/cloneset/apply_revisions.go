package cloneset

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// revisions writes what concerns the update revision itself and returns it as it was left, nil if there was nothing to write.
func (a *application) revisions(ctx context.Context) (left *appsv1.ControllerRevision, err error) {
	if r := a.plan.NewRevision; r != nil {
		left = r.DeepCopy()
		err := a.CreateTyped(ctx, left)
		if apierrors.IsAlreadyExists(err) {
			return nil, a.nameTaken(ctx, r)
		}
		if err != nil {
			return nil, fmt.Errorf("creating revision %s: %w", r.Name, err)
		}
	}
	if r := a.plan.Renumber; r != nil {
		metadata := map[string]any{
			"annotations": map[string]any{pub.ClaimTemplateFingerprint: a.plan.ClaimFingerprint, pub.ClaimTemplates: a.plan.ClaimTemplates},
		}
		if labels := marksOf(r); len(labels) > 0 {
			metadata["labels"] = labels // its images are to be pulled ahead anew (CS-208)
		}
		body, err := reconcile.MergePatch(r, metadata, map[string]any{"revision": a.plan.NewNumber})
		if err != nil {
			return nil, err
		}
		if left, err = reconcile.Patch(ctx, a.Writer, r, body, ""); err != nil {
			return nil, fmt.Errorf("raising the number of revision %s: %w", r.Name, err)
		}
	}
	return left, nil
}

// nameTaken settles that the name of a new revision exists: with equal data it was written by ourselves before, with other data the
// collision count grows and the next pass tries the next hash (CS-084).
func (a *application) nameTaken(ctx context.Context, r *appsv1.ControllerRevision) error {
	existing := &appsv1.ControllerRevision{}
	if err := a.Own.Live.Get(ctx, client.ObjectKeyFromObject(r), existing); err != nil {
		return fmt.Errorf("reading revision %s, whose name is taken: %w", r.Name, err)
	}
	if revision.Equal(existing.Data.Raw, r.Data.Raw) {
		for _, owner := range existing.OwnerReferences {
			if owner.UID == a.plan.Set.UID {
				a.Own.Created(a.plan.Set.UID, existing, a.Now())
				return reconcile.ErrChanged
			}
		}
	}
	collisions := int32(1)
	if a.plan.Status.CollisionCount != nil {
		collisions += *a.plan.Status.CollisionCount
	}
	status := a.plan.Set.Status.DeepCopy()
	status.CollisionCount = &collisions
	body, err := reconcile.StatusPatch(a.plan.Set, &a.plan.Set.Status, status)
	if err != nil {
		return err
	}
	if _, err := reconcile.Patch(ctx, a.Writer, a.plan.Set, body, "status"); err != nil {
		return fmt.Errorf("raising collisionCount because revision %s has other data: %w", r.Name, err)
	}
	return reconcile.ErrChanged
}

// missing makes sure that no revision of the name stands in the API server, though the cache has none: pods are recreated for it, and caches of
// revisions and of pods lag each by itself, above all when a manager takes over from another.
func (a *application) missing(ctx context.Context, label string) error {
	if label == "" {
		return nil
	}
	name := label
	if !strings.Contains(label, "-") {
		name = revision.Name(a.plan.Set.Name, label) // the short hash (CS-050)
	}
	found := &appsv1.ControllerRevision{}
	switch err := a.Own.Live.Get(ctx, types.NamespacedName{Namespace: a.plan.Set.Namespace, Name: name}, found); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for revision %s: %w", name, err)
	}
	if !ours(a.plan.Set, found) {
		return nil
	}
	a.Own.Created(a.plan.Set.UID, found, a.Now()) // the next plan knows of it
	return reconcile.ErrChanged
}

// ours tells whether a revision is one of those that a plan for the set is made from (CS-057).
func ours(set *appsv1beta1.CloneSet, found *appsv1.ControllerRevision) bool {
	if controller := metav1.GetControllerOfNoCopy(found); controller != nil {
		return controller.UID == set.UID
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(found.Labels))
}
