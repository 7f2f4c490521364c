package takeover

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// serves waits until the manager answers webhooks and conversion, which ends the time without a manager, and
// then until all of its replicas are ready.
func (t *takeover) serves(ctx context.Context, namespace string) error {
	t.reached("manager applied")
	if err := t.replicas(ctx, t.managerReference(), 1); err != nil {
		return err
	}

	t.reached("ready")
	if err := t.wait(ctx, "the webhooks", t.answers); err != nil {
		return err
	}
	if err := t.sayWindow(); err != nil {
		return err
	}
	if err := t.ready(ctx, t.managerReference()); err != nil {
		return err
	}

	t.say("the manager in namespace %s is ready, and webhooks answer", namespace)
	return nil
}

// converts lists each kind in each served version.
func (t *takeover) converts(ctx context.Context) error {
	var errs []error
	read := 0
	err := installation.Each(ctx, t.client, installation.Definitions,
		func(definition *unstructured.Unstructured) error {
			if !installation.OfProject(definition) {
				return nil
			}
			kind := installation.StoredKind(definition)
			for _, version := range installation.Maps(definition.Object, "spec", "versions") {
				if kind.Version, _ = version["name"].(string); version["served"] != true {
					continue
				}
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
				if err := t.client.List(ctx, list, client.Limit(1)); err != nil {
					errs = append(errs, fmt.Errorf("reading %s: %w", kind, err))
				}
				read++
			}
			return nil
		})

	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}

	t.say("objects of all kinds can be read in %s", wording.Count(read, "version"))
	return nil
}

// verify compares the cluster with its state before.
func (t *takeover) verify(ctx context.Context, advise func(error) error) error {
	if err := t.wait(ctx, "conversion",
		func(ctx context.Context) (string, error) { return "", t.converts(ctx) }); err != nil {
		return advise(err)
	}

	saved, err := readBackup(t.backup)
	if err != nil {
		return err
	}

	after, err := t.fingerprints(ctx)
	if err != nil {
		return err
	}

	if changed := changes(saved.Pods, after); len(changed) > 0 {
		t.say("of %s these are not as they were, because of rollouts that go on, of their nodes, or of their owners: %s",
			wording.Count(len(saved.Pods), "pod"), most(changed))
	} else {
		t.say("all of %s have the UID, the restarts and the spec that they had",
			wording.Count(len(saved.Pods), "pod"))
	}

	if err := t.acts(ctx); err != nil {
		return err
	}

	manager, err := t.get(ctx, t.managerReference())
	if err == nil && manager != nil { // as the last check
		err = t.displaced(manager)
	}
	if err != nil {
		return advise(err)
	}
	if t.back {
		t.say("done. The folder %s is used up; another takeover needs another one", t.backup)
		return t.useUp()
	}

	t.say("done. The way back: kubectl afloat takeover --back --backup %s", t.backup)
	return nil
}

// announce reports what a run without --dry-run would do.
func (t *takeover) announce(ctx context.Context, s *seen, verbs map[reference]string) error {
	extra, narrowed, err := t.superfluous(ctx)
	if err != nil {
		return err
	}

	t.step("Back up (dry run)")
	t.say("what is replaced would be saved in %s", t.backup)
	t.step("Stop the other manager (dry run)")
	t.say("%s would go from %s to none; then its lock %s/%s has to get free", installation.Of(s.manager),
		replicasOf(s.manager), s.lock.namespace, s.lock.name)
	t.step("Apply (dry run)")
	t.sayManifests(verbs)
	for _, object := range extra {
		t.say("%s would be removed", installation.Of(object))
	}

	for _, object := range narrowed {
		t.say("%s would lose the accounts of the other manager, and keep its other subjects",
			installation.Of(object))
	}

	for _, kind := range s.kinds {
		if !kind.served &&
			installation.Text(kind.definition.Object, "spec", "conversion", "strategy") == "Webhook" {
			t.say("%s would not be converted any more", kind.definition.GetName())
		}
	}

	t.say("nothing was changed")
	return nil
}

// try asks the API server whether it would accept an object in place of the live one. It tries an update
// instead of an apply, because applying removes the fields of others only after they have been adopted.
func (t *takeover) try(ctx context.Context, live, object *unstructured.Unstructured) error {
	if live == nil {
		return t.apply(ctx, object, client.ForceOwnership, client.DryRunAll)
	}
	wanted := object.DeepCopy()
	wanted.SetResourceVersion(live.GetResourceVersion())
	keepBundles(live, wanted)
	return t.client.Update(ctx, wanted, client.DryRunAll) //nolint:wrapcheck // the caller says what
}

// missingNamespace reports whether a dry run failed because a namespace of the manifests does not exist yet.
func missingNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Kind == "namespaces"
}
