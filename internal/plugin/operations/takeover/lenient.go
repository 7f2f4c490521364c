package takeover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// configurations are the webhook configurations that both managers use.
var configurations = []struct {
	kind schema.GroupVersionKind
	name string
}{{installation.MutatingKind, installation.Mutating}, {installation.ValidatingKind, installation.Validating}}

// templateAnnotation is where a manager keeps its list of webhooks. The other manager rewrites the live list
// from it every minute.
const templateAnnotation = "template"

func isConfiguration(object *unstructured.Unstructured) bool {
	return object.GetKind() == installation.MutatingKind.Kind ||
		object.GetKind() == installation.ValidatingKind.Kind
}

// lenient lets pods pass if nobody answers the webhooks of a configuration. It sets failurePolicy to Ignore
// in all entries about pod creation, in the list and in the annotation, and returns the names of the changed
// entries.
func lenient(configuration *unstructured.Unstructured) []string {
	var changed []string
	relax := func(entry map[string]any) {
		if aboutNewPods(entry) && entry["failurePolicy"] != "Ignore" {
			entry["failurePolicy"] = "Ignore"
			if name := installation.Text(entry, "name"); !slices.Contains(changed, name) {
				changed = append(changed, name)
			}
		}
	}

	for _, entry := range installation.Entries(configuration) {
		relax(entry)
	}

	annotations := configuration.GetAnnotations()
	var kept []map[string]any
	if json.Unmarshal([]byte(annotations[templateAnnotation]), &kept) == nil && len(kept) > 0 {
		before := len(changed)
		for _, entry := range kept {
			relax(entry)
		}
		if text, err := json.Marshal(kept); err == nil && (len(changed) > before || before > 0) {
			annotations[templateAnnotation] = string(text)
			configuration.SetAnnotations(annotations)
		}
	}

	return changed
}

// aboutNewPods reports whether an entry is called for pods that are created.
func aboutNewPods(entry map[string]any) bool {
	has := func(rule map[string]any, field string, values ...string) bool {
		return slices.ContainsFunc(texts(rule[field]),
			func(s string) bool { return slices.Contains(values, s) })
	}
	return slices.ContainsFunc(installation.Maps(entry, "rules"), func(rule map[string]any) bool {
		return has(rule, "apiGroups", "", "*") && has(rule, "resources", "pods", "*", "*/*") &&
			has(rule, "operations", "CREATE", "*")
	})
}

// letPodsPass makes the live configurations lenient, so that pods can be created whatever happens to the
// managers.
func (t *takeover) letPodsPass(ctx context.Context) error {
	var changed []string
	for _, c := range configurations {
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			live, err := installation.Get(ctx, t.client, c.kind, "", c.name)
			if err != nil || live == nil {
				return err
			}
			names := lenient(live)
			if len(names) == 0 {
				return nil
			}
			if err := t.client.Update(ctx, live, client.FieldOwner(t.fieldManager)); err != nil {
				return err
			}
			changed = append(changed, names...)
			return nil
		}); err != nil {
			return fmt.Errorf("letting pods pass webhooks that nobody answers, in %s: %w", c.name, err)
		}
	}

	if len(changed) > 0 {
		t.say("pods that are created pass if nobody answers (failurePolicy Ignore), and then without sidecars and subsets: %s",
			strings.Join(changed, ", "))
	}

	return nil
}

// leave is called when a run ends while no manager serves. It makes sure that pods can be created, and adds
// advice to the error.
func (t *takeover) leave(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	if failed := t.letPodsPass(ctx); failed != nil {
		return t.goOn(fmt.Errorf("%w\nand pods may not be created until a manager serves, or until both configurations are deleted: "+
			"kubectl delete mutatingwebhookconfiguration/%s validatingwebhookconfiguration/%s (%w)",
			err, installation.Mutating, installation.Validating, failed))
	}
	return t.goOn(fmt.Errorf(
		"%w\npods can be created meanwhile: webhooks about them let them pass as long as nobody answers",
		err))
}

// strict calls put to restore failure policies once a manager answers, and waits until pods can be created. If
// they cannot, the caller makes the policies lenient again by leave.
func (t *takeover) strict(ctx context.Context, put func() error) error {
	if err := put(); err != nil {
		return err
	}
	if err := t.wait(ctx, "pods that can be created", t.podsPass); err != nil {
		return err
	}
	t.say("webhooks about pods are in force, and pods can be created")
	return nil
}

// podsPass creates a pod as a dry run, in the default namespace and in that of the manager.
func (t *takeover) podsPass(ctx context.Context) (string, error) {
	for _, namespace := range []string{"default", t.choice.Namespace} {
		pod := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": namespace, "name": probeName},
			"spec": map[string]any{"automountServiceAccountToken": false,
				"containers": []any{map[string]any{"name": "probe", "image": "probe"}}}}}
		pod.SetGroupVersionKind(installation.Pods)
		err := t.client.Create(ctx, pod, client.DryRunAll)
		missing, err := t.unanswered(ctx, err)
		if apierrors.IsNotFound(err) { // the namespace does not exist
			continue
		}
		if missing != "" || err != nil {
			return missing, err
		}
	}

	return "", nil
}
