// Package uninstall runs before an installation is removed. It refuses while there are workloads that would
// be left without a controller. Otherwise it removes everything that depends on a running manager.
package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	shown = 5                  // the number of objects of a kind that are named
	owner = "kruise-uninstall" // the field manager of its writes
)

// ErrInUse is returned if workloads exist.
var ErrInUse = errors.New("nothing was removed")

// Guard removes what would fail without a manager.
type Guard struct {
	Client client.Client
	// Kinds are the kinds that block the uninstallation while objects of them exist. Kinds that are not
	// served have no objects.
	Kinds []schema.GroupKind
	// Definitions are the names of the CustomResourceDefinitions that the manager may convert.
	Definitions []string
	// Held are the finalizers that only a manager removes, by kind.
	Held map[schema.GroupKind]string
	// Configurations are the webhook configurations.
	Configurations []client.Object
	// Out receives a report of what is found and done, which is the log of the Job.
	Out io.Writer
}

// Refuse returns ErrInUse and reports the first objects if objects of the kinds exist (OPS-116).
func (g *Guard) Refuse(ctx context.Context) error {
	found := false
	for _, kind := range g.Kinds {
		line, err := g.first(ctx, kind)
		if err != nil {
			return fmt.Errorf("looking for objects of kind %s: %w", kind.Kind, err)
		}
		if line != "" {
			found = true
			g.say("%s: %s", kind, line)
		}
	}

	if !found {
		return nil
	}

	g.say("Nothing was removed: these objects have pods that nobody would look after any more.\n" +
		"Delete them or migrate them, and uninstall again. To remove the installation and leave objects and pods as they are,\n" +
		"bring the release back by helm rollback to its last revision, run helm upgrade with --reuse-values --set helmHooks.guard=false,\n" +
		"and uninstall again.")

	return ErrInUse
}

// first returns the names of the first objects of a kind. It is empty if there are none or the kind is not
// served.
func (g *Guard) first(ctx context.Context, kind schema.GroupKind) (string, error) {
	mapping, err := g.Client.RESTMapper().RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("asking whether it is served: %w", err)
	}

	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	if err := g.Client.List(ctx, list, client.Limit(shown)); err != nil {
		return "", err
	}

	var names []string
	for i := range list.Items {
		names = append(names, strings.TrimPrefix(list.Items[i].Namespace+"/"+list.Items[i].Name, "/"))
	}

	line := strings.Join(names, ", ")
	if more := list.RemainingItemCount; more != nil && *more > 0 {
		line += fmt.Sprintf(" and %d more", *more)
	}

	return line, nil
}

// Release removes the webhook configurations and turns off the conversion of definitions, because both fail
// without a manager (OPS-117, OPS-118). Definitions and objects stay. It is no error if something is gone
// already.
func (g *Guard) Release(ctx context.Context) error {
	for _, configuration := range g.Configurations {
		switch err := g.Client.Delete(ctx, configuration); {
		case err == nil:
			g.say("%s is removed", configuration.GetName())
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("removing %s: %w", configuration.GetName(), err)
		}
	}

	for _, name := range g.Definitions {
		definition := &unstructured.Unstructured{}
		definition.SetGroupVersionKind(schema.GroupVersionKind{
			Group:   "apiextensions.k8s.io",
			Version: "v1",
			Kind:    "CustomResourceDefinition",
		})
		err := g.Client.Get(ctx, client.ObjectKey{Name: name}, definition)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		strategy, _, _ := unstructured.NestedString(definition.Object, "spec", "conversion", "strategy")
		if strategy == "Webhook" {
			patch := client.RawPatch(types.MergePatchType,
				[]byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`))
			err = g.Client.Patch(ctx, definition, patch, client.FieldOwner(owner))
		}
		if err == nil { // also if an earlier run ended after the first patch
			err = g.again(ctx, definition, g.disown)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("ending the conversion of %s: %w", name, err)
		}
		if strategy == "Webhook" {
			g.say("%s is not converted any more", name)
		}
	}

	return nil
}

// disown removes the managed fields entry of the uninstaller, because whoever applies the definition again
// would get a conflict otherwise.
func (g *Guard) disown(ctx context.Context, object *unstructured.Unstructured) error {
	fields := object.GetManagedFields()
	left := slices.DeleteFunc(slices.Clone(fields), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == owner
	})
	if len(left) == len(fields) {
		return nil
	}

	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"managedFields":   left,
		"resourceVersion": object.GetResourceVersion(),
	}})
	if err != nil {
		return fmt.Errorf("encoding the owners of fields: %w", err)
	}

	return g.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, body), client.FieldOwner(owner))
}

// again applies a change to an object. On a conflict it reads the object again and retries.
func (g *Guard) again(
	ctx context.Context, object *unstructured.Unstructured,
	change func(context.Context, *unstructured.Unstructured) error,
) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := change(ctx, object)
		if apierrors.IsConflict(err) {
			if err := g.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
		}
		return err
	})
}

func (g *Guard) say(format string, args ...any) {
	_, _ = fmt.Fprintf(g.Out, format+"\n", args...)
}
