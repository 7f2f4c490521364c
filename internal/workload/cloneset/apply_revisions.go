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

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// revisions writes what concerns the update revision itself and returns it as it was left, nil if there was nothing to write.
func (a *Applier) revisions(ctx context.Context, plan *Plan) (left *appsv1.ControllerRevision, err error) {
	owner := plan.Set.UID
	if r := plan.NewRevision; r != nil {
		created, err := a.Cluster.CreateRevision(ctx, r)
		if apierrors.IsAlreadyExists(err) {
			return nil, a.nameTaken(ctx, plan, r)
		}
		if err != nil {
			a.doubt(plan, KindRevision, r.Name, err)
			return nil, fmt.Errorf("creating revision %s: %w", r.Name, err)
		}
		a.Own.Created(owner, KindRevision, created, a.Now())
		left = created
	}
	if r := plan.Renumber; r != nil {
		metadata := map[string]any{
			"annotations": map[string]any{pub.ClaimTemplateFingerprint: plan.ClaimFingerprint, pub.ClaimTemplates: plan.ClaimTemplates},
		}
		if labels := marksOf(r); len(labels) > 0 {
			metadata["labels"] = labels // its images are to be pulled ahead anew (CS-208)
		}
		body, err := mergePatch(r.UID, r.ResourceVersion, metadata, map[string]any{"revision": plan.NewNumber})
		if err != nil {
			return nil, err
		}
		patched, err := a.Cluster.PatchRevision(ctx, r, body)
		if err != nil {
			a.doubt(plan, KindRevision, r.Name, err)
			return nil, fmt.Errorf("raising the number of revision %s: %w", r.Name, err)
		}
		a.Own.Changed(owner, KindRevision, patched, a.Now())
		left = patched
	}
	return left, nil
}

// nameTaken settles that the name of a new revision exists: with equal data it was written by ourselves before, with other data the
// collision count grows and the next pass tries the next hash (CS-084).
func (a *Applier) nameTaken(ctx context.Context, plan *Plan, r *appsv1.ControllerRevision) error {
	existing, err := a.Cluster.GetRevision(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
	if err != nil {
		return fmt.Errorf("reading revision %s, whose name is taken: %w", r.Name, err)
	}
	if revision.Equal(existing.Data.Raw, r.Data.Raw) {
		for _, owner := range existing.OwnerReferences {
			if owner.UID == plan.Set.UID {
				a.Own.Created(plan.Set.UID, KindRevision, existing, a.Now())
				return errRetry
			}
		}
	}
	collisions := int32(1)
	if plan.Status.CollisionCount != nil {
		collisions += *plan.Status.CollisionCount
	}
	status := plan.Set.Status.DeepCopy()
	status.CollisionCount = &collisions
	changes, err := statusPatch(&plan.Set.Status, status)
	if err != nil {
		return err
	}
	body, err := mergePatch(plan.Set.UID, plan.Set.ResourceVersion, nil, map[string]any{"status": changes})
	if err != nil {
		return err
	}
	patched, err := a.Cluster.PatchSet(ctx, plan.Set, body, "status")
	if err != nil {
		return fmt.Errorf("raising collisionCount because revision %s has other data: %w", r.Name, err)
	}
	a.Own.Changed(plan.Set.UID, KindSet, patched, a.Now())
	return errRetry
}

// missing makes sure that no revision of the name stands in the API server, though the cache has none: pods are recreated for it, and caches of
// revisions and of pods lag each by itself, above all when a manager takes over from another.
func (a *Applier) missing(ctx context.Context, plan *Plan, label string) error {
	if label == "" {
		return nil
	}
	name := label
	if !strings.Contains(label, "-") {
		name = revision.Name(plan.Set.Name, label) // the short hash (CS-050)
	}
	found, err := a.Cluster.GetRevision(ctx, types.NamespacedName{Namespace: plan.Set.Namespace, Name: name})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for revision %s: %w", name, err)
	}
	if !ours(plan.Set, found) {
		return nil
	}
	a.Own.Created(plan.Set.UID, KindRevision, found, a.Now()) // the next plan waits until the cache shows it
	return errRetry
}

// ours tells whether a revision is one of those that a plan for the set is made from (CS-057).
func ours(set *appsv1beta1.CloneSet, found *appsv1.ControllerRevision) bool {
	if controller := metav1.GetControllerOfNoCopy(found); controller != nil {
		return controller.UID == set.UID
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(found.Labels))
}
