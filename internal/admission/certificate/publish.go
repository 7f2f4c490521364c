package certificate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// templateAnnotation holds the original list of webhooks as JSON (OPS-064).
const templateAnnotation = "template"

var (
	mutatingKind   = admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration")
	validatingKind = admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
	crdKind        = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
)

// publisher brings webhook configurations and CRDs in line (OPS-042, OPS-064, OPS-071). Objects are read and patched as documents,
// so that fields of other versions stay as they are.
type publisher struct {
	client  client.Client
	target  Target
	objects []published
}

// Target is where the API server finds the webhooks.
type Target struct {
	// Namespace and Service name the Service, on port 443.
	Namespace, Service string
	// Host, if not empty, is a host name or address to be called instead, on Port.
	Host string
	Port int
}

// name is what the serving certificate is issued for (OPS-043).
func (t Target) name() string {
	if t.Host != "" {
		return t.Host
	}
	return t.Service + "." + t.Namespace + ".svc"
}

// fill sets Service or URL in a client configuration. Its path is that of the handler.
func (t Target) fill(config map[string]any, path string, bundle []byte) {
	config["caBundle"] = encodeBundle(bundle)
	if t.Host != "" {
		delete(config, "service")
		u := url.URL{Scheme: "https", Host: net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), Path: path}
		config["url"] = u.String()
		return
	}
	delete(config, "url")
	config["service"] = map[string]any{"namespace": t.Namespace, "name": t.Service, "path": path, "port": int64(443)}
}

// published is one object that carries the bundle. build returns the fields as they should be, by JSON pointer, and notes for the log.
type published struct {
	kind  schema.GroupVersionKind
	name  string
	build func(object *unstructured.Unstructured, bundle []byte) (fields map[string]any, notes []string, err error)
}

// Kinds of requests that are handled: entries of the configurations for other paths are not served and are left out (OPS-064).
func newPublisher(c client.Client, target Target, mutating, validating string, paths []string, crds []string) *publisher {
	p := &publisher{client: c, target: target}
	active := map[string]bool{}
	for _, path := range paths {
		active[path] = true
	}
	webhooks := func(object *unstructured.Unstructured, bundle []byte) (map[string]any, []string, error) {
		return p.webhooks(object, bundle, active)
	}
	p.objects = []published{{mutatingKind, mutating, webhooks}, {validatingKind, validating, webhooks}}
	for _, name := range crds {
		p.objects = append(p.objects, published{crdKind, name, p.conversion})
	}
	return p
}

// publish patches what differs and returns what the log should say. An object that does not exist has nothing to be patched.
func (p *publisher) publish(ctx context.Context, bundle []byte) (notes []string, err error) {
	for _, object := range p.objects {
		more, err := p.publishOne(ctx, object, bundle)
		if err != nil {
			return notes, fmt.Errorf("bringing %s %s in line: %w", object.kind.Kind, object.name, err)
		}
		notes = append(notes, more...)
	}
	return notes, nil
}

func (p *publisher) publishOne(ctx context.Context, object published, bundle []byte) ([]string, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.kind)
	if err := p.client.Get(ctx, types.NamespacedName{Name: object.name}, live); err != nil {
		if apierrors.IsNotFound(err) {
			return []string{object.kind.Kind + " " + object.name + " does not exist"}, nil
		}
		return nil, err
	}
	fields, notes, err := object.build(live.DeepCopy(), bundle)
	if err != nil {
		return nil, err
	}
	operations := []jsonpatch.Operation{}
	for pointer, value := range fields {
		if present, found := at(live.Object, pointer); !found || !equality.Semantic.DeepEqual(present, value) {
			operations = append(operations, jsonpatch.NewOperation("add", pointer, value))
		}
	}
	if len(operations) == 0 {
		return notes, nil
	}
	// Whoever changed the object since we read it is seen by the next pass.
	operations = append([]jsonpatch.Operation{jsonpatch.NewOperation("test", "/metadata/resourceVersion", live.GetResourceVersion())}, operations...)
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	if err := p.client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return nil, err
	}
	return append(notes, "updated "+object.kind.Kind+" "+object.name), nil
}

// webhooks builds the list of entries: the present ones that we handle, then those of the template that are gone from it.
func (p *publisher) webhooks(object *unstructured.Unstructured, bundle []byte, active map[string]bool) (map[string]any, []string, error) {
	present, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return nil, nil, err
	}
	annotations := object.GetAnnotations()
	template := present
	if text := annotations[templateAnnotation]; text != "" {
		var kept []any
		if err := json.Unmarshal([]byte(text), &kept); err != nil {
			return nil, nil, fmt.Errorf("reading annotation %s: %w", templateAnnotation, err)
		}
		template = kept
	}
	fields, entries, seen, notes := map[string]any{}, []any{}, map[string]bool{}, []string(nil)
	for _, item := range append(append([]any{}, present...), template...) {
		entry, ok := item.(map[string]any)
		name, _, _ := unstructured.NestedString(entry, "name")
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		path := pathOf(entry)
		if !active[path] {
			notes = append(notes, fmt.Sprintf("left out webhook %s of %s: nothing handles %s", name, object.GetName(), path)) // OPS-065
			continue
		}
		config, _ := entry["clientConfig"].(map[string]any)
		p.target.fill(config, path, bundle)
		entries = append(entries, entry)
	}
	if len(entries)+len(present) > 0 {
		fields["/webhooks"] = entries
	}
	if annotations[templateAnnotation] == "" {
		text, err := templateText(present)
		if err != nil {
			return nil, nil, err
		}
		if annotations == nil {
			fields["/metadata/annotations"] = map[string]any{templateAnnotation: text}
		} else {
			fields["/metadata/annotations/"+templateAnnotation] = text
		}
	}
	return fields, notes, nil
}

// templateText encodes entries without the bundles filled in.
func templateText(entries []any) (string, error) {
	var bare []any
	for _, item := range entries {
		if entry, ok := runtime.DeepCopyJSONValue(item).(map[string]any); ok {
			unstructured.RemoveNestedField(entry, "clientConfig", "caBundle")
			bare = append(bare, entry)
		}
	}
	text, err := json.Marshal(bare)
	return string(text), err
}

// pathOf is the path that an entry calls, by Service or by URL.
func pathOf(entry map[string]any) string {
	if path, ok, _ := unstructured.NestedString(entry, "clientConfig", "service", "path"); ok {
		return path
	}
	text, _, _ := unstructured.NestedString(entry, "clientConfig", "url")
	if u, err := url.Parse(text); err == nil {
		return u.Path
	}
	return ""
}

// conversion builds the conversion settings of a CRD that declares the strategy Webhook, and nothing for others (OPS-071).
func (p *publisher) conversion(object *unstructured.Unstructured, bundle []byte) (map[string]any, []string, error) {
	strategy, _, _ := unstructured.NestedString(object.Object, "spec", "conversion", "strategy")
	if strategy != "Webhook" {
		return nil, nil, nil
	}
	config, _, err := unstructured.NestedMap(object.Object, "spec", "conversion", "webhook", "clientConfig")
	if err != nil {
		return nil, nil, err
	}
	if config == nil {
		config = map[string]any{}
	}
	p.target.fill(config, "/convert", bundle)
	return map[string]any{"/spec/conversion/webhook": map[string]any{
		"clientConfig":             config,
		"conversionReviewVersions": []any{"v1", "v1beta1"},
	}}, nil, nil
}

// encodeBundle is the form of a bundle in a document.
func encodeBundle(bundle []byte) string {
	data, err := json.Marshal(bundle) // base64
	if err != nil {
		return ""
	}
	return string(bytes.Trim(data, `"`))
}

// at looks up a JSON pointer without escapes.
func at(object map[string]any, pointer string) (any, bool) {
	var fields []string
	for part := range bytes.SplitSeq([]byte(pointer[1:]), []byte("/")) {
		fields = append(fields, string(part))
	}
	value, found, err := unstructured.NestedFieldNoCopy(object, fields...)
	return value, found && err == nil
}
