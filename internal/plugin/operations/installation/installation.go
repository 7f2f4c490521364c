// Package installation knows what an installation of a manager consists of: the names that this project
// shares with the reference, the manifests, and how to read objects of an installation with few requests.
package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/config"
)

// Names of the objects of an installation, which are those of the reference (OPS-110).
const (
	// Namespace is where managers are installed unless somebody chose another one.
	Namespace  = "kruise-system"
	Manager    = "kruise-controller-manager"
	Daemon     = "kruise-daemon"
	Secret     = "kruise-webhook-certs" //nolint:gosec // a name
	Service    = "kruise-webhook-service"
	Lock       = "kruise-manager"
	Mutating   = "kruise-mutating-webhook-configuration"
	Validating = "kruise-validating-webhook-configuration"
)

// images of the manifests, which nobody publishes.
const (
	managerImage = "afloat/manager:dev"
	daemonImage  = "afloat/daemon:dev"
)

// Kinds of objects of an installation.
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

// PartOf is the label by which objects of this project are told from those of the reference, and Project its
// value.
const (
	PartOf  = "app.kubernetes.io/part-of"
	Project = "afloat"
)

// IsOurs tells whether a Deployment or DaemonSet is of this project.
func IsOurs(object client.Object) bool { return object.GetLabels()[PartOf] == Project }

// Choice says which manifests are wanted.
type Choice struct {
	// Image and DaemonImage replace those of the manifests, unless empty.
	Image, DaemonImage string
	// Path names other manifests: a file, a folder with a kustomization, or a folder of files.
	Path string
	// Namespace is where the manager goes.
	Namespace string
	// Distributes asks for what feature gate ResourceDistributionGate needs, as far as the manifests do not
	// have it.
	Distributes bool
}

// Manifests are the objects of an installation.
func Manifests(c Choice) ([]*unstructured.Unstructured, error) {
	text, err := c.text()
	if err != nil {
		return nil, err
	}
	objects, err := Parse(text)
	if err != nil {
		return nil, err
	}
	if c.Distributes {
		if text, err = config.ResourceDistribution(); err != nil {
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

func (c Choice) text() ([]byte, error) {
	if c.Path == "" {
		return config.Default() //nolint:wrapcheck // it says what was read
	}
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

// Parse reads objects in YAML or JSON.
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

// renamed is a document with all its texts changed.
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

// Find is the object of that kind and name among objects; nil if there is none.
func Find(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	return nil
}

// Get reads an object. It is nil if there is none, or its kind is not served.
func Get(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, namespace,
	name string) (*unstructured.Unstructured, error) {
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

// page is how many objects are asked for at a time.
const page = 500

// renewals is how often a list is taken up again whose continuation has expired.
const renewals = 20

// Each lists objects page by page, each of them once. A kind that is not served has none. If reading takes so
// long that the server has forgotten where it was, the list goes on after the last object: with what the
// server offers for that, or from the beginning.
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
			if expired > 0 && name <= last { // lists are in this order
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

// continuation is how a server lets a list go on whose continuation has expired; empty if it does not.
func continuation(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// Entries are the entries of a webhook configuration.
func Entries(configuration *unstructured.Unstructured) []map[string]any {
	if configuration == nil {
		return nil
	}
	return Maps(configuration.Object, "webhooks")
}

// Maps are the members of a list that are objects.
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

// Text is a string in a document; empty if it is not there.
func Text(object map[string]any, path ...string) string {
	text, _, _ := unstructured.NestedString(object, path...)
	return text
}

// OfProject tells whether a definition is of the groups of the project.
func OfProject(definition *unstructured.Unstructured) bool {
	group := Text(definition.Object, "spec", "group")
	return group == "apps.kruise.io" || group == "policy.kruise.io"
}

// Of names an object, such as Deployment kruise-system/kruise-controller-manager.
func Of(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	return kind + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/")
}

// StoredKind is the kind of a definition, in the version in which objects are stored: it is read without a
// conversion.
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
