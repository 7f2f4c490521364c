package podapply

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Revisions writes the changes of the update revision itself, and returns the version that it left, nil if
// there was nothing to write. It returns false if that fails; nothing else may be tried then.
func (a *Execution) Revisions(
	ctx context.Context, result *Result,
) (left *appsv1.ControllerRevision, ok bool) {
	left, err := a.writeRevision(ctx)
	if err != nil {
		result.Add(&result.UpdateError, err)
		return nil, false
	}
	return left, true
}

// History deletes the revisions that nothing needs any more.
func (a *Execution) History(ctx context.Context, result *Result) {
	for _, old := range a.plan.History {
		if err := a.Delete(ctx, old); err != nil {
			result.Add(&result.UpdateError, fmt.Errorf("deleting revision %s: %w", old.Name, err))
		}
	}
}

func (a *Execution) writeRevision(ctx context.Context) (left *appsv1.ControllerRevision, err error) {
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
		metadata := map[string]any{}
		if len(a.plan.Remembered) > 0 {
			metadata["annotations"] = a.plan.Remembered
		}
		if labels := marksOf(r); len(labels) > 0 {
			metadata["labels"] = labels // its images are to be pulled ahead again
		}
		if left, err = reconcile.Merge(ctx, a.Writer, r, metadata, map[string]any{
			"revision": a.plan.NewNumber,
		}, ""); err != nil {
			return nil, fmt.Errorf("raising the number of revision %s: %w", r.Name, err)
		}
	}

	return left, nil
}

// nameTaken handles a new revision whose name is taken. If the existing revision has equal data and is the
// owner's, or has no owner but matches its selector, this process wrote it before or a former owner released
// it. Otherwise the collision count grows, and the next pass tries the next hash.
func (a *Execution) nameTaken(ctx context.Context, r *appsv1.ControllerRevision) error {
	existing := &appsv1.ControllerRevision{}
	if err := a.Own.Live.Get(ctx, client.ObjectKeyFromObject(r), existing); err != nil {
		return fmt.Errorf("reading revision %s, whose name is taken: %w", r.Name, err)
	}
	if revision.Equal(existing.Data.Raw, r.Data.Raw) && ours(a.owner, a.selector, existing) {
		a.Own.Created(a.owner.GetUID(), existing, a.Now())
		return reconcile.ErrStalePlan
	}

	collisions := int32(1)
	if a.plan.CollisionCount != nil {
		collisions += *a.plan.CollisionCount
	}

	if err := a.Collided(ctx, collisions); err != nil {
		return fmt.Errorf("raising collisionCount because revision %s has other data: %w", r.Name, err)
	}

	return reconcile.ErrStalePlan
}

// revisionName returns the name of the revision that a pod's label refers to.
func revisionName(owner client.Object, label string) string {
	if strings.Contains(label, "-") {
		return label
	}
	return revision.Name(owner.GetName(), label) // the label is the short hash
}

// ensureRevisionAbsent makes sure that the API server has no revision of that name, although the cache has
// none: pods are recreated because of it, and the caches of revisions and of pods lag independently, above
// all when one manager takes over from another.
func (a *Execution) ensureRevisionAbsent(ctx context.Context, label string) error {
	if label == "" {
		return nil
	}

	name := revisionName(a.owner, label)
	found := &appsv1.ControllerRevision{}
	switch err := a.Own.Live.Get(ctx, types.NamespacedName{
		Namespace: a.owner.GetNamespace(), Name: name,
	}, found); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for revision %s: %w", name, err)
	}

	a.Own.Created(a.owner.GetUID(), found, a.Now()) // the next plan includes it
	return reconcile.ErrStalePlan
}
