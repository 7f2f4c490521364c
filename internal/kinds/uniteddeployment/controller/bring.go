package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// verified reports whether a child that seems to be up to date was compared with the API server at this
// generation. The caches keep no templates, and somebody may have changed the template by hand, or it may be
// bound to other nodes since before it was adopted.
func (a *application) verified(v *uniteddeployment.Verdict) bool {
	return (v.Action == uniteddeployment.Verify || v.Action == uniteddeployment.Keep) &&
		a.Kept.verified[v.Child.Object.GetUID()] == fingerprint(v.Child.Object.GetGeneration(), v)
}

func fingerprint(generation int64, v *uniteddeployment.Verdict) string {
	wanted, most := &v.Wanted, "-"
	if wanted.MaxUnavailable != nil {
		most = wanted.MaxUnavailable.String()
	}
	return fmt.Sprintf("%d %d %d %s %s %s %v %v", generation, wanted.Replicas, wanted.Partition,
		wanted.Revision, most, wanted.Patch, v.Subset.NodeSelectorTerm, v.Subset.Tolerations)
}

// bring updates a child by a patch of everything in which the live object differs from what it should be.
func (a *application) bring(ctx context.Context, v *uniteddeployment.Verdict) error {
	after, err := a.plan.Template.Build(a.Object, v.Subset, v.Wanted)
	if err != nil {
		return err
	}

	before, err := a.before(ctx, v)
	if err != nil {
		return err
	}

	for range attempts {
		err = a.bringOnce(ctx, v, before, after)
		if !apierrors.IsConflict(err) {
			break
		}
	}

	if err != nil && !reconcile.IsStalePlan(err) {
		return fmt.Errorf("updating %s: %w", v.Child, err)
	}

	return reconcile.StaleIfNotFound(err)
}

func (a *application) bringOnce(
	ctx context.Context, v *uniteddeployment.Verdict, before, after map[string]any,
) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(a.plan.Template.Kind.GroupVersionKind())
	if err := a.Live.Get(ctx, types.NamespacedName{Namespace: a.Object.Namespace,
		Name: v.Child.Object.GetName()}, live); err != nil {
		return reconcile.StaleIfNotFound(err)
	}
	if live.GetUID() != v.Child.Object.GetUID() || uniteddeployment.OwnerOf(live) != a.Object.UID ||
		live.GetDeletionTimestamp() != nil {
		return reconcile.ErrStalePlan
	}

	delete(after, "status")
	changes, err := difference(live.Object, uniteddeployment.Merge(live.Object, before, after))
	if err != nil {
		return err
	}
	if len(changes) == 0 {
		a.verify(v, live.GetGeneration())
		return nil
	}

	target := a.plan.Template.Kind.New()
	target.SetNamespace(live.GetNamespace())
	target.SetName(live.GetName())
	target.SetUID(live.GetUID())
	target.SetResourceVersion(live.GetResourceVersion())
	metadata, _ := changes["metadata"].(map[string]any)
	delete(changes, "metadata")
	left, err := reconcile.Merge(ctx, a.Writer, target, metadata, changes, "")
	if err == nil { // what the API server did not keep is not sent again
		a.verify(v, left.GetGeneration())
	}

	return err
}

// verify records that a child is up to date at this generation.
func (a *application) verify(v *uniteddeployment.Verdict, generation int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Kept.verified == nil {
		a.Kept.verified = map[types.UID]string{}
	}
	if len(a.Kept.verified) > 2*len(a.plan.Subsets) { // many children are gone
		maps.DeleteFunc(a.Kept.verified, func(uid types.UID, _ string) bool {
			return !slices.ContainsFunc(a.plan.Subsets, func(v uniteddeployment.Verdict) bool {
				return v.Child != nil && v.Child.Object.GetUID() == uid
			})
		})
	}
	a.Kept.verified[v.Child.Object.GetUID()] = fingerprint(generation, v)
}

// difference returns the merge patch that turns one document into another. Null members count as absent,
// since typed clients write them.
func difference(before, after map[string]any) (map[string]any, error) {
	old, err := json.Marshal(withoutNulls(before))
	if err != nil {
		return nil, fmt.Errorf("encoding what is there: %w", err)
	}

	next, err := json.Marshal(withoutNulls(after))
	if err != nil {
		return nil, fmt.Errorf("encoding what is wanted: %w", err)
	}

	patch, err := jsonpatch.CreateMergePatch(old, next)
	if err != nil {
		return nil, fmt.Errorf("comparing: %w", err)
	}

	changes := map[string]any{}
	return changes, json.Unmarshal(patch, &changes)
}

// withoutNulls returns a copy of a document without null members.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := make(map[string]any, len(value))
		for key, member := range value {
			if member != nil {
				kept[key] = withoutNulls(member)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, item := range value {
			kept[i] = withoutNulls(item)
		}
		return kept
	}

	return value
}

// before returns the document that the child was made from, by the revision and the patch that it names, or
// nil if that is no longer known.
func (a *application) before(ctx context.Context, v *uniteddeployment.Verdict) (map[string]any, error) {
	template := a.plan.Template
	c := v.Child
	if c.Revision != v.Wanted.Revision {
		name := c.Revision
		stored := &appsv1.ControllerRevision{}
		err := a.Client.Get(ctx, types.NamespacedName{Namespace: a.Object.Namespace, Name: name}, stored,
			client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			name = revision.Name(a.Object.Name, c.Revision)
			err = a.Client.Get(ctx, types.NamespacedName{Namespace: a.Object.Namespace, Name: name}, stored,
				client.UnsafeDisableDeepCopy)
		}
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading revision %s: %w", name, err)
		}
		if err != nil || uniteddeployment.OwnerOf(stored) != a.Object.UID {
			return nil, nil //nolint:nilerr // it is not known any more
		}
		text, err := revision.Template(stored.Data.Raw)
		if err != nil {
			return nil, nil //nolint:nilerr // it was not written by this kind
		}
		if template, err = uniteddeployment.ParseTemplate(text); err != nil ||
			template.Kind != a.plan.Template.Kind {
			return nil, nil //nolint:nilerr // likewise
		}
	}
	old := v.Subset.DeepCopy()
	old.Patch.Raw = []byte(c.Patch)
	wanted := v.Wanted
	wanted.Patch, wanted.Revision = c.Patch, c.Revision
	built, err := template.Build(a.Object, old, wanted)
	if err != nil {
		return nil, nil //nolint:nilerr // a patch that is not one any more
	}

	return built, nil
}
