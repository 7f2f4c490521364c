package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/plugin/installation"
)

// goBack puts back what the backup has.
func (t *takeover) goBack(ctx context.Context) error {
	t.step("Look")
	b, err := readBackup(t.backup)
	if err != nil {
		return err
	}
	if b == nil {
		return fmt.Errorf("there is no backup in %s: a takeover that got no further than that has changed nothing", t.backup)
	}
	t.choice.Namespace = b.Namespace
	theirs := b.find(installation.Deployments, installation.Manager)
	if theirs == nil {
		return fmt.Errorf("the backup in %s has no Deployment %s", t.backup, installation.Manager)
	}
	manager, err := t.get(ctx, t.managerReference())
	if err != nil {
		return err
	}
	old := source{manager: theirs}
	t.say("%s is to run %s again, with %s", installation.Of(theirs), old.image(), replicasOf(theirs))
	migrations, err := t.migrations(ctx, b)
	if err != nil {
		return err
	}
	for _, m := range migrations {
		t.say("%s: objects may be stored in %s, and the other definition has %s alone; they are stored again before", m.name,
			strings.Join(m.lost, " and "), m.version)
	}
	if len(migrations) > 0 && !installation.IsOurs(manager) {
		return errors.New("nothing was changed: objects have to be stored again, and the manager that converts them does not run any more; " +
			"run the takeover again first")
	}
	if t.dryRun != wet {
		for _, object := range b.objects {
			t.say("%s would be put back", installation.Of(object))
		}
		for _, r := range b.Absent {
			if removable(r) {
				t.say("%s %s would be removed", r.Kind, r.Name)
			}
		}
		t.say("nothing was changed")
		return nil
	}
	if err := t.confirm(fmt.Sprintf("Stop Afloat and put %s back?", old.image())); err != nil {
		return err
	}
	t.step("Store objects so that the other definitions serve them")
	for _, m := range migrations {
		if err := t.migrate(ctx, m); err != nil {
			return err
		}
	}
	if len(migrations) == 0 {
		t.say("all of them are")
	}
	if installation.IsOurs(manager) {
		t.step("Note pods, and stop Afloat's manager")
		if err := t.stopOurs(ctx, b, manager); err != nil {
			return err
		}
	}
	t.step("Put back")
	if err := t.restore(ctx, b); err != nil {
		return t.goOn(err)
	}
	t.step("Verify")
	return t.verify(ctx, t.goOn)
}

// stopOurs ends the manager of this project. What pods are then is what they are compared with.
func (t *takeover) stopOurs(ctx context.Context, b *backup, manager *unstructured.Unstructured) error {
	if replicas, _, _ := unstructured.NestedInt64(manager.Object, "spec", "replicas"); replicas > 0 {
		var err error
		if b.Pods, err = t.fingerprints(ctx); err != nil {
			return err
		}
		if err := b.write(t.backup); err != nil {
			return err
		}
		t.say("%s noted", plural.Of(len(b.Pods), "pod"))
	}
	return t.stop(ctx, lockOf(manager, t.choice.Namespace))
}

// removable tells whether an object that the cluster did not have before is removed: objects of users would go with a definition or a
// namespace.
func removable(r reference) bool {
	return r.Kind != "Namespace" && r.Kind != installation.Definitions.Kind
}

// restore puts all objects back, the manager when all that it needs is there, and the node daemons after it.
func (t *takeover) restore(ctx context.Context, b *backup) error {
	objects := slices.Clone(b.objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, r := range b.Absent {
		if !removable(r) || r.Kind == installation.DaemonSets.Kind {
			continue
		}
		if err := t.remove(ctx, r); err != nil {
			return err
		}
	}
	daemon := false
	for _, object := range objects {
		if object.GetKind() == installation.DaemonSets.Kind {
			daemon = true
			if err := t.serves(ctx, b.Namespace); err != nil {
				return err
			}
		}
		if err := t.restoreOne(ctx, object); err != nil {
			return fmt.Errorf("putting back %s: %w", installation.Of(object), err)
		}
	}
	t.say("put back: %s", plural.Of(len(objects), "object"))
	if !daemon {
		return t.serves(ctx, b.Namespace)
	}
	for _, object := range objects {
		if object.GetKind() == installation.DaemonSets.Kind {
			if err := t.ready(ctx, referenceTo(object)); err != nil {
				t.say("the node daemons are not all ready: %v", err)
			}
		}
	}
	return nil
}

// restoreOne makes an object what it was, together with who owned which of its fields.
func (t *takeover) restoreOne(ctx context.Context, saved *unstructured.Unstructured) error {
	if slices.Contains(shared, saved.GetKind()) {
		if live, err := t.get(ctx, referenceTo(saved)); err != nil || live != nil && !t.owns(live) {
			return err
		} else if live != nil { // what the manifests have brought goes, what others have stays
			empty := &unstructured.Unstructured{}
			empty.SetGroupVersionKind(saved.GroupVersionKind())
			empty.SetNamespace(saved.GetNamespace())
			empty.SetName(saved.GetName())
			return t.apply(ctx, empty, client.ForceOwnership)
		}
	}
	update := func() error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			wanted := saved.DeepCopy()
			delete(wanted.Object, "status")
			live, err := t.get(ctx, referenceTo(saved))
			if err != nil {
				return err
			}
			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"} {
				unstructured.RemoveNestedField(wanted.Object, "metadata", field)
			}
			if live == nil {
				wanted.SetManagedFields(nil)
				return t.client.Create(ctx, wanted, client.FieldOwner(t.fieldManager))
			}
			wanted.SetResourceVersion(live.GetResourceVersion())
			wanted.SetUID(live.GetUID())
			joinBundles(live, wanted)
			if wanted.GetKind() == "Service" { // the cluster's, should the Service have been made anew
				for _, field := range []string{"clusterIP", "clusterIPs"} {
					if value, has, _ := unstructured.NestedFieldCopy(live.Object, "spec", field); has {
						_ = unstructured.SetNestedField(wanted.Object, value, "spec", field)
					}
				}
			}
			return t.client.Update(ctx, wanted, client.FieldOwner(t.fieldManager))
		})
	}
	err := update()
	if apierrors.IsInvalid(err) && slices.Contains(replaced, saved.GetKind()) {
		if err := t.remove(ctx, referenceTo(saved)); err != nil {
			return err
		}
		err = update()
	}
	return err
}

// migration is a kind whose objects have to be stored in another version.
type migration struct {
	reference
	name, version string
	lost          []string
}

// migrations are the kinds whose saved definition does not serve what may be stored.
func (t *takeover) migrations(ctx context.Context, b *backup) ([]migration, error) {
	var found []migration
	for _, saved := range b.objects {
		if saved.GetKind() != installation.Definitions.Kind {
			continue
		}
		live, err := t.get(ctx, referenceTo(saved))
		if err != nil {
			return nil, err
		}
		if live == nil {
			continue
		}
		if lost := missingVersions(live, saved); len(lost) > 0 {
			stored, _, _ := unstructured.NestedStringSlice(live.Object, "status", "storedVersions")
			found = append(found, migration{reference: referenceTo(saved), name: saved.GetName(),
				version: installation.StoredKind(saved).Version, lost: stored})
		}
	}
	return found, nil
}

// migrate lets objects be stored in the version of the other definition, through the conversion of this project's manager: the definition
// is told to store
// that version, each object is written as it is, and the definition is told that no other version is stored any more.
func (t *takeover) migrate(ctx context.Context, m migration) error {
	if err := t.edit(ctx, m.reference, func(definition *unstructured.Unstructured) error {
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if err != nil {
			return fmt.Errorf("the versions of %s: %w", m.name, err)
		}
		for _, item := range versions {
			if version, ok := item.(map[string]any); ok {
				version["storage"] = version["name"] == m.version
			}
		}
		return unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions")
	}); err != nil {
		return fmt.Errorf("changing the stored version of %s: %w", m.name, err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(t.settle):
	}
	live, err := t.get(ctx, m.reference)
	if err != nil {
		return err
	}
	written := 0
	if err := installation.Each(ctx, t.client, installation.StoredKind(live), func(object *unstructured.Unstructured) error {
		written++
		err := t.client.Update(ctx, object.DeepCopy(), client.FieldOwner(t.fieldManager))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) { // who was faster has stored it
			return fmt.Errorf("storing %s again: %w", installation.Of(object), err)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := t.get(ctx, m.reference)
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedStringSlice(live.Object, []string{m.version}, "status", "storedVersions"); err != nil {
			return fmt.Errorf("the stored versions of %s: %w", m.name, err)
		}
		return t.client.Status().Update(ctx, live, client.FieldOwner(t.fieldManager))
	}); err != nil {
		return fmt.Errorf("noting that %s is stored in %s alone: %w", m.name, m.version, err)
	}
	t.say("%s: %s stored in %s", m.name, plural.Of(written, "object"), m.version)
	return nil
}
