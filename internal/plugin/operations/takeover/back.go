package takeover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/platform/uninstall"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/registry"
)

// goBack restores the backup.
func (t *takeover) goBack(ctx context.Context) error {
	t.step("Look")
	b, err := t.backupOf(ctx)
	if err != nil {
		return err
	}

	if b == nil {
		return fmt.Errorf(
			"there is no backup in %s: a takeover that got no further than that has changed nothing",
			t.backup)
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

	old, ours := source{manager: theirs}, manager != nil && installation.IsOurs(manager)
	t.say("%s is to run %s again, with %s", installation.Of(theirs), old.image(), replicasOf(theirs))
	migrations, err := t.migrations(ctx, b)
	if err != nil {
		return err
	}

	for _, m := range migrations {
		t.say("%s: objects may be stored in %s, and the other definition has %s alone; they are stored again before",
			m.name, strings.Join(m.lost, " and "), m.version)
	}

	if len(migrations) > 0 && !ours {
		return errors.New("nothing was changed: objects have to be stored again, and the manager that converts them does not run any more; " +
			"run the takeover again first")
	}
	if err := t.managed(ctx, manager); err != nil {
		return err
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

	ctx, release, err := t.takeTurn(ctx)
	if err != nil {
		return err
	}

	defer release()
	if err := t.unchanged(ctx, manager); err != nil {
		return err
	}

	t.step("Store objects so that the other definitions serve them")
	if err := t.migrate(ctx, migrations); err != nil {
		return err
	}
	if len(migrations) == 0 {
		t.say("all of them are")
	}

	switch {
	case ours:
		t.step("Note pods, and stop Afloat's manager")
		if err := t.stopOurs(ctx, b, manager); err != nil {
			return err
		}
	case manager == nil:
		// Either an interrupted run was about to create the Deployment again, or somebody has removed it. Its
		// pods may still be there.
		t.step("Wait for whoever leads")
		if err := t.lockFree(ctx, newWatcher(placesOf(theirs, lockOf(theirs, t.choice.Namespace),
			t.choice.Namespace))); err != nil {
			return t.leave(ctx, err)
		}
	}
	t.step("Put back")
	if err := t.restore(ctx, b); err != nil {
		return t.leave(ctx, err)
	}

	t.step("Verify")
	return errors.Join(t.verify(ctx, t.goOn), t.releaseRuns(ctx))
}

// stopOurs stops the manager of the project. The pods are compared later with their state at this moment.
func (t *takeover) stopOurs(ctx context.Context, b *backup, manager *unstructured.Unstructured) error {
	if replicas, _, _ := unstructured.NestedInt64(manager.Object, "spec", "replicas"); replicas > 0 {
		var err error
		if b.Pods, err = t.fingerprints(ctx); err != nil {
			return err
		}
		if err := b.write(t.backup); err != nil {
			return err
		}
		t.say("%s noted", wording.Count(len(b.Pods), "pod"))
	}
	return t.stop(ctx, placesOf(manager, lockOf(manager, t.choice.Namespace), t.choice.Namespace))
}

// removable reports whether an object that did not exist before the takeover is removed. Deleting a
// definition or a namespace would also delete objects of users.
func removable(r reference) bool {
	return r.Kind != "Namespace" && r.Kind != installation.Definitions.Kind
}

// restore restores all objects: first what a manager and its webhooks depend on, then the manager, then the
// webhooks about pods once the manager answers, and the node daemons last.
func (t *takeover) restore(ctx context.Context, b *backup) error {
	objects := slices.Clone(b.objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	absent := slices.DeleteFunc(slices.Clone(b.Absent), func(r reference) bool {
		return !removable(r) || r.Kind == installation.DaemonSets.Kind
	})

	if err := together(ctx, absent, t.remove); err != nil {
		return err
	}

	var first, webhooks, daemons []*unstructured.Unstructured
	for _, object := range objects {
		switch {
		case object.GetKind() == installation.DaemonSets.Kind:
			daemons = append(daemons, object)
		case isConfiguration(object):
			passing := object.DeepCopy()
			lenient(passing)
			first, webhooks = append(first, passing), append(webhooks, object)
		default:
			first = append(first, object)
		}
	}

	if err := byRank(ctx, first, t.putBackOne); err != nil {
		return err
	}
	if err := t.serves(ctx, b.Namespace); err != nil {
		return err
	}
	if err := t.strict(ctx, func() error { return t.putBack(ctx, webhooks...) }); err != nil {
		return err
	}
	if err := t.putBack(ctx, daemons...); err != nil {
		return err
	}

	t.say("put back: %s", wording.Count(len(objects), "object"))
	for _, object := range daemons {
		if err := t.ready(ctx, referenceTo(object)); err != nil {
			t.say("the node daemons are not all ready: %v", err)
		}
	}

	return nil
}

// releaseRuns takes the finalizer off children of AdvancedCronJobs that Afloat's manager had created and not yet recorded
// when it was stopped: the other manager does not know it, and they could never be deleted. The webhooks about them have to be
// answered.
func (t *takeover) releaseRuns(ctx context.Context) error {
	held := registry.Held()
	maps.DeleteFunc(held, func(_ schema.GroupKind, finalizer string) bool { return finalizer != pub.UnrecordedRun })
	guard := uninstall.Guard{Client: t.client, Held: held, Out: t.Out}
	if err := guard.Unhold(ctx); err != nil {
		return fmt.Errorf("runs of AdvancedCronJobs may keep finalizer %s, and cannot be deleted then: %w", pub.UnrecordedRun, err)
	}
	return nil
}

func (t *takeover) putBack(ctx context.Context, objects ...*unstructured.Unstructured) error {
	return together(ctx, objects, t.putBackOne)
}

func (t *takeover) putBackOne(ctx context.Context, object *unstructured.Unstructured) error {
	if err := t.restoreOne(ctx, object); err != nil {
		return fmt.Errorf("putting back %s: %w", installation.Of(object), err)
	}
	return nil
}

// restoreOne restores an object, including the ownership of its fields.
func (t *takeover) restoreOne(ctx context.Context, saved *unstructured.Unstructured) error {
	if slices.Contains(shared, saved.GetKind()) {
		if live, err := t.get(ctx, referenceTo(saved)); err != nil || live != nil {
			return errors.Join(err, t.restoreShared(ctx, saved))
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

			if referenceTo(saved) == t.managerReference() {
				if err := t.healed(ctx, live); err != nil {
					return err
				}
			}

			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation",
				"selfLink"} {
				unstructured.RemoveNestedField(wanted.Object, "metadata", field)
			}

			if live == nil {
				wanted.SetManagedFields(nil)
				return t.client.Create(ctx, wanted, client.FieldOwner(t.fieldManager))
			}

			wanted.SetResourceVersion(live.GetResourceVersion())
			wanted.SetUID(live.GetUID())
			joinBundles(live, wanted)
			t.keepPeople(live, wanted)
			// If the Service was created again, the cluster has chosen other addresses.
			if wanted.GetKind() == "Service" {
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

// restoreShared removes what the manifests have added to an object that others change as well, and restores
// what the object has lost. It does so in one write, because webhooks select namespaces by their labels.
func (t *takeover) restoreShared(ctx context.Context, saved *unstructured.Unstructured) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := t.get(ctx, referenceTo(saved))
		if err != nil || live == nil {
			return err
		}

		ours, others := fieldpath.NewSet(), live.GetManagedFields()[:0:0]
		for _, entry := range live.GetManagedFields() {
			if entry.Manager != t.fieldManager || entry.Operation != metav1.ManagedFieldsOperationApply ||
				entry.FieldsV1 == nil {
				others = append(others, entry)
				continue
			}
			if err := ours.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
				return fmt.Errorf("reading the fields of %s: %w", entry.Manager, err)
			}
		}

		wanted := live.DeepCopy()
		merge := func(live, saved map[string]string, path ...any) map[string]string {
			merged := maps.Clone(live)
			if merged == nil {
				merged = map[string]string{}
			}
			for key := range live {
				if _, had := saved[key]; !had && ours.Has(fieldpath.MakePathOrDie(append(path, key)...)) {
					delete(merged, key)
				}
			}
			for key, value := range saved {
				if now, has := live[key]; !has ||
					now != value && ours.Has(fieldpath.MakePathOrDie(append(path, key)...)) {
					merged[key] = value
				}
			}
			return merged
		}

		wanted.SetLabels(merge(live.GetLabels(), saved.GetLabels(), "metadata", "labels"))
		wanted.SetAnnotations(merge(live.GetAnnotations(), saved.GetAnnotations(), "metadata", "annotations"))

		for field := range live.Object {
			if ours.Has(fieldpath.MakePathOrDie(field)) && field != "metadata" {
				delete(wanted.Object, field)
			}
		}

		for field, value := range saved.Object {
			if _, has := wanted.Object[field]; !has && field != "status" {
				wanted.Object[field] = value
			}
		}

		if wanted.SetManagedFields(others); equality.Semantic.DeepEqual(live, wanted) {
			return nil
		}

		return t.client.Update(ctx, wanted, client.FieldOwner(t.fieldManager))
	})
}

// migration is a kind whose objects have to be stored in another version.
type migration struct {
	reference
	name, version string
	lost          []string
}

// migrations returns the kinds whose saved definition lacks a version in which objects may be stored.
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

// migrate stores objects in the version of the other definition, by means of the conversion of the project's
// manager: it sets the storage version of the definitions, waits until all API servers know it, writes each
// object unchanged, and then removes all other versions from the stored versions.
func (t *takeover) migrate(ctx context.Context, migrations []migration) error {
	if len(migrations) == 0 {
		return nil
	}

	for _, m := range migrations {
		if err := t.storeIn(ctx, m); err != nil {
			return fmt.Errorf("changing the stored version of %s: %w", m.name, err)
		}
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(t.settle):
	}

	for _, m := range migrations {
		if err := t.storeAgain(ctx, m); err != nil {
			return err
		}
	}

	return nil
}

// storeIn sets the storage version of a definition.
func (t *takeover) storeIn(ctx context.Context, m migration) error {
	return t.edit(ctx, m.reference, func(definition *unstructured.Unstructured) error {
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
	})
}

// storeAgain writes each object of a kind unchanged, and records that no other version is stored any more.
func (t *takeover) storeAgain(ctx context.Context, m migration) error {
	live, err := t.get(ctx, m.reference)
	if err != nil {
		return err
	}

	written, refused := 0, []string(nil)
	if err := installation.Each(ctx, t.client, installation.StoredKind(live),
		func(object *unstructured.Unstructured) error {
			written++
			err := t.store(ctx, object)
			if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
				refused = append(refused, fmt.Sprintf("%s (%v)", installation.Of(object), err))
				return nil
			}
			if err != nil {
				return fmt.Errorf("storing %s again: %w", installation.Of(object), err)
			}
			return nil
		}); err != nil {
		return err
	}

	if len(refused) > 0 {
		return fmt.Errorf("nothing was stopped: the other definition of %s does not have the version in which these are stored, and they are refused "+
			"when they are stored again: change or delete them, and run the command again: %s",
			m.name, most(refused))
	}

	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := t.get(ctx, m.reference)
		if err != nil {
			return err
		}
		if err := unstructured.SetNestedStringSlice(live.Object, []string{m.version}, "status",
			"storedVersions"); err != nil {
			return fmt.Errorf("the stored versions of %s: %w", m.name, err)
		}
		return t.client.Status().Update(ctx, live, client.FieldOwner(t.fieldManager))
	}); err != nil {
		return fmt.Errorf("noting that %s is stored in %s alone: %w", m.name, m.version, err)
	}

	t.say("%s: %s stored in %s", m.name, wording.Count(written, "object"), m.version)
	return nil
}

// store writes an object unchanged, so that it is stored in the current storage version. It writes to the
// status subresource where the kind has one: the whole object is stored, while no webhook adds defaults to
// the spec and no rule about changes of the spec applies.
func (t *takeover) store(ctx context.Context, object *unstructured.Unstructured) error {
	err := t.client.Status().Update(ctx, object.DeepCopy(), client.FieldOwner(t.fieldManager))
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) ||
		apierrors.IsBadRequest(err) {
		err = t.client.Update(ctx, object.DeepCopy(), client.FieldOwner(t.fieldManager))
	}
	// On a conflict, somebody else has just written the object, and so stored it.
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) {
		return nil
	}
	return err //nolint:wrapcheck // the caller says what
}
