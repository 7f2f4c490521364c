package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/plugin/installation"
)

// serves waits until the manager is ready and answers webhooks and conversion.
func (t *takeover) serves(ctx context.Context, namespace string) error {
	if err := t.ready(ctx, t.managerReference()); err != nil {
		return err
	}
	if err := t.wait(ctx, "the webhooks", t.answers); err != nil {
		return err
	}
	t.say("the manager in namespace %s is ready, and webhooks answer", namespace)
	return t.sayWindow()
}

// answers tells whether webhooks are answered: an object that both configurations are about is created as a dry run.
func (t *takeover) answers(ctx context.Context) (string, error) {
	definition, err := installation.Get(ctx, t.client, installation.Definitions, "", "clonesets.apps.kruise.io")
	if err != nil || definition == nil {
		return "there is no definition of CloneSets", err
	}
	probe := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "default", "name": "afloat-takeover-probe"},
		"spec": map[string]any{"replicas": int64(0),
			"selector": map[string]any{"matchLabels": map[string]any{"app": "afloat-takeover-probe"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "afloat-takeover-probe"}},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "probe", "image": "probe"}}}}}}}
	probe.SetGroupVersionKind(installation.StoredKind(definition))
	switch err := t.client.Create(ctx, probe, client.DryRunAll); {
	case apierrors.IsInternalError(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsTooManyRequests(err):
		return err.Error(), nil
	case apierrors.IsForbidden(err), err == nil: // somebody answered, or a quota did after they had
		return "", nil
	default:
		return "", fmt.Errorf("creating a CloneSet as a dry run: %w", err)
	}
}

// converts reads an object of each kind in each served version.
func (t *takeover) converts(ctx context.Context) error {
	var errs []error
	read := 0
	err := installation.Each(ctx, t.client, installation.Definitions, func(definition *unstructured.Unstructured) error {
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
	t.say("objects of all kinds can be read in %s", plural.Of(read, "version"))
	return nil
}

// verify compares the cluster with what it was.
func (t *takeover) verify(ctx context.Context, advise func(error) error) error {
	if err := t.wait(ctx, "conversion", func(ctx context.Context) (string, error) { return "", t.converts(ctx) }); err != nil {
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
			plural.Of(len(saved.Pods), "pod"), most(changed))
	} else {
		t.say("all of %s have the UID, the restarts and the spec that they had", plural.Of(len(saved.Pods), "pod"))
	}
	if t.back {
		t.say("done. The folder %s is not needed any more", t.backup)
		return nil
	}
	t.say("done. The way back: kubectl afloat takeover --back --backup %s", t.backup)
	return nil
}

// announce says what a run without --dry-run would do. With the server's dry run, the API server checks the manifests.
func (t *takeover) announce(ctx context.Context, s *seen) error {
	if err := t.prepare(s); err != nil {
		return err
	}
	extra, err := t.superfluous(ctx)
	if err != nil {
		return err
	}
	t.step("Back up (dry run)")
	t.say("what is replaced would be saved in %s", t.backup)
	t.step("Stop the other manager (dry run)")
	t.say("%s would go from %s to none; then its lock %s/%s has to get free", installation.Of(s.manager), replicasOf(s.manager),
		s.lock.namespace, s.lock.name)
	t.step("Apply (dry run)")
	var errs []error
	for _, object := range t.manifests {
		live, err := t.get(ctx, referenceTo(object))
		if err != nil {
			return err
		}
		verb := "created"
		if live != nil {
			verb = "changed"
		}
		if t.dryRun == server {
			switch err := t.try(ctx, live, object); {
			case apierrors.IsInvalid(err) && live != nil && slices.Contains(replaced, object.GetKind()):
				verb = "made anew"
			case err != nil && !missingNamespace(err):
				errs = append(errs, fmt.Errorf("applying %s: %w", installation.Of(object), err))
			}
		}
		t.say("%s would be %s", installation.Of(object), verb)
	}
	for _, object := range extra {
		t.say("%s would be removed", installation.Of(object))
	}
	for _, kind := range s.kinds {
		if !kind.served && installation.Text(kind.definition.Object, "spec", "conversion", "strategy") == "Webhook" {
			t.say("%s would not be converted any more", kind.definition.GetName())
		}
	}
	t.say("nothing was changed")
	return errors.Join(errs...)
}

// try asks the API server whether it would take an object in place of what is there. As long as the fields of others are not taken over,
// applying would not
// remove them, so that what is there is replaced.
func (t *takeover) try(ctx context.Context, live, object *unstructured.Unstructured) error {
	if live == nil {
		return t.apply(ctx, object, client.ForceOwnership, client.DryRunAll)
	}
	wanted := object.DeepCopy()
	wanted.SetResourceVersion(live.GetResourceVersion())
	keepBundles(live, wanted)
	return t.client.Update(ctx, wanted, client.DryRunAll) //nolint:wrapcheck // the caller says what
}

// missingNamespace tells whether a dry run failed because a namespace of the manifests is not there yet.
func missingNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Kind == "namespaces"
}
