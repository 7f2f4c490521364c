package takeover

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/registry"
)

// probes contains one object of each kind that a controller reconciles. The objects ask for nothing.
//
//go:embed probes.yaml
var probes []byte

// actsWithin is how long a controller may take to reconcile a new object. Managers look every ten seconds for
// kinds that appear late.
const actsWithin = 2 * time.Minute

// theirsWithin is how long to wait for a controller of the other manager.
const theirsWithin = 30 * time.Second

// acts checks that the controllers of the new manager act: for each kind in use, it creates an object that
// asks for nothing, waits for its status, and removes it. A manager may be ready and answer webhooks, and
// still have a controller that waits forever for a permission or a definition.
func (t *takeover) acts(ctx context.Context) error {
	objects, unproven, err := t.probesInUse(ctx)
	if err != nil {
		return err
	}
	// An interrupted run may have left some.
	if err := t.removeProbes(ctx, objects); err != nil {
		return err
	}

	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		if err := t.removeProbes(ctx, objects); err != nil {
			t.say("objects named %s of this check stay: %v", probeName, err)
		}
	}()

	waiting := map[string]*unstructured.Unstructured{}
	// Some fields of the probes exist in another version only.
	creator := client.WithFieldValidation(t.client, metav1.FieldValidationIgnore)
	for _, object := range objects {
		switch err := creator.Create(ctx, object.DeepCopy(), client.FieldOwner(t.fieldManager)); {
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
			err != nil && t.back:
			unproven = append(unproven, fmt.Sprintf("%s (%v)", object.GetKind(), err))
		case err != nil:
			return fmt.Errorf("creating %s, to see whether the manager acts: %w", installation.Of(object),
				err)
		default:
			waiting[object.GetKind()] = object
		}
	}

	asked := len(waiting)
	patient := *t
	if patient.timeout = min(t.timeout, actsWithin); t.back {
		patient.timeout = min(t.timeout, theirsWithin)
	}

	err = patient.wait(ctx, "the manager to act on each kind in use",
		func(ctx context.Context) (string, error) {
			var errs []error
			for kind, object := range waiting {
				live, err := t.get(ctx, referenceTo(object))
				if err != nil {
					errs = append(errs, err)
				} else if live != nil && acted(live) {
					delete(waiting, kind)
				}
			}
			return strings.Join(slices.Sorted(maps.Keys(waiting)), ", "), errors.Join(errs...)
		})

	if len(unproven) > 0 {
		t.say("not checked whether the manager acts on: %s", strings.Join(unproven, "; "))
	}

	// OpenKruise decides itself what it writes to an object that asks for nothing.
	if len(waiting) > 0 && t.back && ctx.Err() == nil {
		t.say("OpenKruise's manager was not seen to act on %s within %s: look at its log",
			strings.Join(slices.Sorted(maps.Keys(waiting)), ", "), patient.timeout)
		return nil
	}

	if len(waiting) > 0 {
		return fmt.Errorf("the new manager serves, but does not act on %s: %w\nits log says why, as does: kubectl afloat doctor\n"+
			"go back with: kubectl afloat takeover --back --backup %s",
			strings.Join(slices.Sorted(maps.Keys(waiting)), ", "), err, t.backup)
	}

	if err == nil {
		t.say("the manager acts on each of %s in use", wording.Count(asked, "kind"))
	}

	return err
}

// acted reports whether a controller has reconciled an object that was created without a status.
func acted(live *unstructured.Unstructured) bool {
	status, _, _ := unstructured.NestedMap(live.Object, "status")
	seen, has, _ := unstructured.NestedInt64(status, "observedGeneration")
	return len(status) > 0 && (!has || seen >= live.GetGeneration())
}

// probesInUse returns the probes of the kinds that have objects, and names the kinds that have objects but no
// probe. It skips kinds whose feature gate is off, because they have no controller.
func (t *takeover) probesInUse(ctx context.Context) (
	used []*unstructured.Unstructured, unproven []string, err error) {
	all, err := installation.Parse([]byte(strings.ReplaceAll(string(probes), installation.Namespace,
		t.choice.Namespace)))
	if err != nil {
		return nil, nil, err
	}

	manager, err := t.get(ctx, t.managerReference())
	if err != nil || manager == nil {
		return nil, nil, err
	}

	list, _ := argument(manager, "feature-gates")
	// The gates of the other manager may have names that are unknown here.
	gates, _, err := explain.Gates(list)
	if err != nil {
		return nil, nil, fmt.Errorf("the manager's feature gates: %w", err)
	}

	for i := range registry.Kinds {
		kind := &registry.Kinds[i]
		if kind.Gates.Off(gates) != nil {
			continue
		}

		definition, err := installation.Get(ctx, t.client, installation.Definitions, "",
			kind.Plural+"."+kind.Group)
		if err != nil {
			return nil, nil, err
		}
		if definition == nil {
			continue
		}

		stored := installation.StoredKind(definition)
		objects := &unstructured.UnstructuredList{}
		objects.SetGroupVersionKind(stored.GroupVersion().WithKind(stored.Kind + "List"))
		if err := t.client.List(ctx, objects, client.Limit(1)); err != nil {
			return nil, nil, fmt.Errorf("looking for objects of %s: %w", definition.GetName(), err)
		}
		if len(objects.Items) == 0 {
			continue
		}

		probe := installation.Find(all, kind.Name, probeName)
		if probe == nil {
			unproven = append(unproven, kind.Name+" (each object of it asks for something)")
			continue
		}

		probe.SetGroupVersionKind(stored)
		used = append(used, probe)
	}

	return used, unproven, nil
}

func (t *takeover) removeProbes(ctx context.Context, objects []*unstructured.Unstructured) error {
	var errs []error
	for _, object := range objects {
		errs = append(errs, t.remove(ctx, referenceTo(object)))
	}
	return errors.Join(errs...)
}
