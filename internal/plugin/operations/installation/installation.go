// Package installation describes what an installation of a manager consists of: the names that the project
// shares with OpenKruise, and the manifests. It reads the objects of an installation with few requests.
package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/config"
)

// Names of the objects of an installation, which are those of OpenKruise (OPS-110).
const (
	// Namespace is where managers are installed unless the user chose another one.
	Namespace  = "kruise-system"
	Manager    = "kruise-controller-manager"
	Daemon     = "kruise-daemon"
	Secret     = "kruise-webhook-certs" //nolint:gosec // a name
	Service    = "kruise-webhook-service"
	Lock       = "kruise-manager"
	Mutating   = "kruise-mutating-webhook-configuration"
	Validating = "kruise-validating-webhook-configuration"
)

// The images in the manifests are placeholders that are not published.
const (
	managerImage = "afloat/manager:dev"
	daemonImage  = "afloat/daemon:dev"
)

// Kinds of the objects of an installation.
var (
	Deployments = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	DaemonSets  = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	Pods        = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	Secrets     = schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	Leases      = schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}
	Definitions = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"}
	MutatingKind = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "MutatingWebhookConfiguration"}
	ValidatingKind = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "ValidatingWebhookConfiguration"}
)

// DerivedEntries are the webhook entries that the manager itself adds to those of the manifests (OPS-062).
var DerivedEntries = []string{"mpod-all.kb.io", "mpod-recent.kb.io", "vpod-budget.kb.io",
	"vpodeviction-budget.kb.io"}

// PartOf is the label that distinguishes objects of the project from those of OpenKruise, and Project is its
// value.
const (
	PartOf  = "app.kubernetes.io/part-of"
	Project = "afloat"
)

// IsOurs reports whether a Deployment or DaemonSet belongs to the project.
func IsOurs(object client.Object) bool { return object.GetLabels()[PartOf] == Project }

// Choice selects and completes manifests.
type Choice struct {
	// Image and DaemonImage replace those of the manifests, unless empty.
	Image, DaemonImage string
	// Path is the path of other manifests: a file, a folder with a kustomization, or a folder of files.
	Path string
	// Namespace is the namespace of the manager.
	Namespace string
	// Distributes adds what the feature gate ResourceDistributionGate needs, unless the manifests have it.
	Distributes bool
}

// Manifests returns the objects of an installation.
func Manifests(c Choice) ([]*unstructured.Unstructured, error) {
	objects, err := c.objects()
	if err != nil {
		return nil, err
	}

	if c.Distributes {
		text, err := config.ResourceDistribution()
		if err != nil {
			return nil, err //nolint:wrapcheck // it says what was read
		}
		more, err := Parse(text)
		if err != nil {
			return nil, err
		}
		for _, object := range more {
			if Find(objects, object.GetKind(), object.GetName()) == nil {
				objects = append(objects, object)
			}
		}
	}

	for _, object := range objects {
		object.Object, _ = renamed(object.Object, func(s string) string {
			switch {
			case s == managerImage && c.Image != "":
				return c.Image
			case s == daemonImage && c.DaemonImage != "":
				return c.DaemonImage
			case c.Namespace != "" && c.Namespace != Namespace:
				return strings.ReplaceAll(s, Namespace, c.Namespace)
			}
			return s
		}).(map[string]any)
	}

	return objects, nil
}

// shipped are the objects of the manifests in the binary. A command asks for them several times, and reading them takes long.
var shipped = sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
	text, err := config.Default()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what was read
	}

	return Parse(text)
})

// objects returns the objects of the manifests, which the caller may change.
func (c Choice) objects() ([]*unstructured.Unstructured, error) {
	if c.Path == "" {
		objects, err := shipped()
		objects = slices.Clone(objects)
		for i := range objects {
			objects[i] = objects[i].DeepCopy()
		}

		return objects, err
	}

	text, err := c.text()
	if err != nil {
		return nil, err
	}

	return Parse(text)
}

// text returns the manifests in the path.
func (c Choice) text() ([]byte, error) {
	info, err := os.Stat(c.Path)
	if err != nil {
		return nil, fmt.Errorf("the manifests: %w", err)
	}
	if !info.IsDir() {
		return os.ReadFile(c.Path)
	}

	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		if _, err := os.Stat(filepath.Join(c.Path, name)); err == nil {
			return config.Folder(c.Path)
		}
	}

	paths, err := filepath.Glob(filepath.Join(c.Path, "*.y*ml"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("there are no manifests in %s", c.Path)
	}

	var all [][]byte
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("the manifests: %w", err)
		}
		all = append(all, text)
	}

	return bytes.Join(all, []byte("\n---\n")), nil
}

// Parse decodes objects in YAML or JSON.
func Parse(text []byte) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading manifests: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// renamed changes all strings in a document, and returns the document.
func renamed(value any, change func(string) string) any {
	switch v := value.(type) {
	case string:
		return change(v)
	case []any:
		for i := range v {
			v[i] = renamed(v[i], change)
		}
	case map[string]any:
		for key := range v {
			v[key] = renamed(v[key], change)
		}
	}

	return value
}

// Find returns the object of the given kind and name, or nil if there is none.
func Find(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	return nil
}

// Get reads an object. It returns nil if the object does not exist or its kind is not served.
func Get(ctx context.Context, c client.Reader, kind schema.GroupVersionKind,
	namespace, name string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	switch err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", kind.Kind, name, err)
	}
	return object, nil
}

// page is the number of objects per request.
const page = 500

// renewals is how often a list is resumed after its continue token has expired.
const renewals = 20

// Each calls do once for each listed object, page by page. A kind that is not served has no objects. If the
// continue token expires, the list resumes after the last object: with the token that the server offers for
// that, or else from the beginning.
func Each(ctx context.Context, c client.Reader, kind schema.GroupVersionKind,
	do func(*unstructured.Unstructured) error, options ...client.ListOption) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	last, expired := "", 0
	for {
		err := c.List(ctx, list, append(options, client.Limit(page), client.Continue(list.GetContinue()))...)
		switch {
		case meta.IsNoMatchError(err):
			return nil
		case apierrors.IsResourceExpired(err) && expired < renewals:
			expired++
			list.SetContinue(continuation(err))
			continue
		case err != nil:
			return fmt.Errorf("listing %s: %w", kind.GroupKind(), err)
		}

		for i := range list.Items {
			name := list.Items[i].GetNamespace() + "/" + list.Items[i].GetName()
			if expired > 0 && name <= last { // lists are sorted by this name
				continue
			}
			last = name
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}

		if list.GetContinue() == "" {
			return nil
		}
	}
}

// continuation returns the token with which the server resumes an expired list, or nothing if it offers none.
func continuation(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// Entries returns the entries of a webhook configuration.
func Entries(configuration *unstructured.Unstructured) []map[string]any {
	if configuration == nil {
		return nil
	}
	return Maps(configuration.Object, "webhooks")
}

// Maps returns those items of a list that are objects.
func Maps(object map[string]any, path ...string) []map[string]any {
	list, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	items, _ := list.([]any)
	var maps []map[string]any
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			maps = append(maps, m)
		}
	}
	return maps
}

// Text returns a string in a document, or an empty string if it does not exist.
func Text(object map[string]any, path ...string) string {
	text, _, _ := unstructured.NestedString(object, path...)
	return text
}

// OfProject reports whether a definition is in an API group of the project.
func OfProject(definition *unstructured.Unstructured) bool {
	group := Text(definition.Object, "spec", "group")
	return group == "apps.kruise.io" || group == "policy.kruise.io"
}

// Of returns the kind and name of an object, such as Deployment kruise-system/kruise-controller-manager.
func Of(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	return kind + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
}

// StoredKind returns the kind of a definition in its storage version, which is read without a conversion.
func StoredKind(definition *unstructured.Unstructured) schema.GroupVersionKind {
	kind := schema.GroupVersionKind{Group: Text(definition.Object, "spec", "group"),
		Kind: Text(definition.Object, "spec", "names", "kind")}
	for _, version := range Maps(definition.Object, "spec", "versions") {
		if name, _ := version["name"].(string); version["storage"] == true || kind.Version == "" {
			kind.Version = name
		}
	}
	return kind
}
