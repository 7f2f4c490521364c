package certificate

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// templateAnnotation holds the original list of webhooks as JSON.
const templateAnnotation = "template"

// convertPath is where CRDs are converted.
const convertPath = "/convert"

var (
	mutatingKind   = admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration")
	validatingKind = admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration")
	crdKind        = schema.GroupVersionKind{
		Group:   "apiextensions.k8s.io",
		Version: "v1",
		Kind:    "CustomResourceDefinition",
	}
)

// publisher brings webhook configurations and CRDs in line. Objects are read and patched as documents, so
// that fields of other versions stay as they are.
//
// Several managers may share the objects: replicas, an older and a newer release during an upgrade, the
// reference. So that none undoes what another did, each changes only entries that it serves itself, never
// changes unknown ones, and only the leader adds and drops entries.
type publisher struct {
	client client.Client
	target Target
	// paths are those this manager knows; false means that the feature is off here.
	paths  map[string]bool
	scopes map[string]Scope
	// elected is closed on the leader; nil means that this process always leads.
	elected <-chan struct{}
	// readOnly says that certificates are external: objects are only compared, not written.
	readOnly bool
	objects  []published
	derived  []Derived
	recent   *Recent
	// firstSeen has when each recent rule was first seen, by the clock of this process.
	firstSeen map[recentRule]time.Time
	now       func() time.Time
	check     func(expression string) error
}

// report is what publishing found.
type report struct {
	// notes are for the log.
	notes []string
	// unserved are entries that call this manager but have no handler.
	unserved []unserved
	// mismatched are objects with another authority, if the manager may not change them.
	mismatched []string
	// lacking says what a starting replica waits for before it is ready.
	lacking string
}

// unserved is an entry of a webhook configuration, or the conversion of a CRD.
type unserved struct{ object, name, path string }

func (u unserved) String() string {
	return fmt.Sprintf("%s of %s: nothing here handles %s", u.name, u.object, u.path)
}

// Target is where the API server finds the webhooks.
type Target struct {
	// Namespace and Service name the Service, on port 443.
	Namespace, Service string
	// Host, if not empty, is a host name or address to be called instead, on Port.
	Host string
	Port int
}

// name is the host name for which the serving certificate is issued.
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
	config["service"] = map[string]any{
		"namespace": t.Namespace,
		"name":      t.Service,
		"path":      path,
		"port":      int64(443),
	}
}

// published is one object that carries the bundle. build returns its fields as they should be, by JSON
// pointer.
type published struct {
	kind  schema.GroupVersionKind
	name  string
	build func(object *unstructured.Unstructured, bundle []byte,
		found *report) (fields map[string]any, err error)
}

func newPublisher(c client.Client, o Options) *publisher {
	p := &publisher{
		client:   c,
		target:   o.Target,
		paths:    o.Paths,
		scopes:   o.Scopes,
		elected:  o.Elected,
		readOnly: o.External,
		derived:  o.Derived,
		recent:   o.Recent,
		now:      time.Now,
		check:    o.Check,
	}
	if p.check == nil {
		p.check = func(string) error { return nil }
	}
	p.objects = []published{
		{mutatingKind, o.Mutating, p.webhooks},
		{validatingKind, o.Validating, p.webhooks},
	}
	for _, name := range o.CRDs {
		p.objects = append(p.objects, published{crdKind, name, p.conversion})
	}
	return p
}

// publish patches the objects that differ. It skips objects that do not exist, and goes on after one that
// cannot be patched.
func (p *publisher) publish(ctx context.Context, bundle []byte) (report, error) {
	var found report
	var errs []error
	for _, object := range p.objects {
		if err := p.publishOne(ctx, object, bundle, &found); err != nil {
			errs = append(errs, fmt.Errorf("bringing %s %s in line: %w", object.kind.Kind, object.name, err))
		}
	}
	return found, errors.Join(errs...)
}

// rescope is publish for the webhook configurations alone, and only if this manager writes them.
func (p *publisher) rescope(ctx context.Context, bundle []byte) error {
	if p.readOnly || !p.leads() {
		return nil
	}
	for _, object := range p.objects {
		if object.kind != mutatingKind && object.kind != validatingKind {
			continue
		}
		if err := p.publishOne(ctx, object, bundle, &report{}); err != nil {
			return fmt.Errorf("bringing %s %s in line: %w", object.kind.Kind, object.name, err)
		}
	}
	return nil
}

func (p *publisher) publishOne(ctx context.Context, object published, bundle []byte, found *report) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.kind)
	if err := p.client.Get(ctx, types.NamespacedName{Name: object.name}, live); err != nil {
		return client.IgnoreNotFound(err)
	}
	fields, err := object.build(live.DeepCopy(), bundle, found)
	if err != nil || p.readOnly {
		return err
	}
	operations := []jsonpatch.Operation{}
	for pointer, value := range fields {
		if present, found := at(live.Object, pointer); !found ||
			!equality.Semantic.DeepEqual(present, value) {
			operations = append(operations, jsonpatch.NewOperation("add", pointer, value))
		}
	}
	if len(operations) == 0 {
		return nil
	}
	// If the object was changed since it was read, this is a conflict.
	operations = append(operations,
		jsonpatch.NewOperation("replace", "/metadata/resourceVersion", live.GetResourceVersion()))
	patch, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	if err := p.client.Patch(ctx, live,
		client.RawPatch(types.JSONPatchType, patch)); apierrors.IsConflict(err) {
		return errLostRace
	} else if err != nil {
		return err
	}
	found.notes = append(found.notes, "updated "+object.kind.Kind+" "+object.name)
	return nil
}

// carries tells whether a bundle has all authorities. It may have more: cert-manager's injector keeps the one
// before, so that calls succeed while an authority changes.
func carries(bundle, authorities []byte) bool {
	present, err := certutil.ParseCertsPEM(bundle)
	if err != nil {
		return false
	}
	wanted, err := certutil.ParseCertsPEM(authorities)
	return err == nil &&
		!slices.ContainsFunc(wanted,
			func(one *x509.Certificate) bool { return !slices.ContainsFunc(present, one.Equal) })
}

// adopt fills in the client configuration of something that this manager serves.
func (p *publisher) adopt(config map[string]any, path string, bundle []byte, what string, found *report) {
	if present, _ := config["caBundle"].(string); p.readOnly && present != encodeBundle(bundle) {
		if data, err := base64.StdEncoding.DecodeString(present); err != nil || !carries(data, bundle) {
			found.mismatched = append(found.mismatched, what+" does not carry the authority of the Secret")
		}
	}
	p.target.fill(config, path, bundle)
}

func (p *publisher) leads() bool {
	if p.elected == nil {
		return true
	}
	select {
	case <-p.elected:
		return true
	default:
		return false
	}
}

// webhooks builds the list of entries: those present, then those of the template that are gone from it. An
// entry for an unknown path stays as it is and is reported: another manager may serve it, and without it
// requests would pass unseen.
func (p *publisher) webhooks(
	object *unstructured.Unstructured, bundle []byte, found *report,
) (map[string]any, error) {
	present, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return nil, err
	}
	fields, entries, seen := map[string]any{}, []any{}, map[string]bool{}
	template, err := p.template(object, present, fields)
	if err != nil {
		return nil, err
	}
	for i, item := range append(append([]any{}, present...), template...) {
		entry, ok := item.(map[string]any)
		name, _, _ := unstructured.NestedString(entry, "name")
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		path, live := pathOf(entry), i < len(present)
		active, known := p.paths[path]
		switch {
		case !known && live:
			found.unserved = append(found.unserved, unserved{object.GetName(), name, path})
			entries = append(entries, entry)
		case active && (live || p.leads()):
			config, _ := entry["clientConfig"].(map[string]any)
			p.adopt(config, path, bundle, name+" of "+object.GetName(), found)
			if scope, ok := p.scopes[name]; ok && p.leads() {
				if conditions, known := scope.Conditions(); known {
					p.narrow(entry, conditions, scope.Policy, found)
				}
			}
			entries = append(entries, entry)
		case known && live && !p.leads():
			entries = append(entries, entry)
		}
	}
	entries = p.derive(object.GetKind(), entries, found)
	if p.recent != nil && p.paths[p.recent.Path] && object.GetKind() == mutatingKind.Kind {
		rules := recentOf(object)
		if p.leads() {
			rules = p.recall(rules)
			if err := rules.remember(object, fields); err != nil {
				return nil, err
			}
		}
		entries = p.recent.weave(entries, rules)
	}
	if len(entries)+len(present) > 0 {
		fields["/webhooks"] = entries
	}
	return fields, nil
}

// narrow limits an entry to the requests for which all conditions are true, and sets its failurePolicy. A
// condition that API servers could not evaluate would refuse these requests. It is left out: the handlers
// know what to do with requests that need not have been sent.
func (p *publisher) narrow(
	entry map[string]any, conditions []admissionv1.MatchCondition, policy admissionv1.FailurePolicyType,
	found *report,
) {
	list := make([]any, 0, len(conditions))
	for _, c := range conditions {
		if err := p.check(c.Expression); err != nil {
			found.notes = append(found.notes,
				fmt.Sprintf("condition %s of webhook %s is left out: %v", c.Name, entry["name"], err))
			continue
		}
		list = append(list, map[string]any{"name": c.Name, "expression": c.Expression})
	}
	entry["matchConditions"], entry["failurePolicy"] = list, string(policy)
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

// conversion builds the conversion settings of a CRD that declares the strategy Webhook, and nothing for
// others.
func (p *publisher) conversion(
	object *unstructured.Unstructured, bundle []byte, found *report,
) (map[string]any, error) {
	config, ok, err := conversionConfig(object)
	if !ok || err != nil {
		return nil, err
	}
	p.adopt(config, convertPath, bundle, "conversion of "+object.GetName(), found)
	return map[string]any{"/spec/conversion/webhook": map[string]any{
		"clientConfig":             config,
		"conversionReviewVersions": []any{"v1", "v1beta1"},
	}}, nil
}

// conversionConfig returns the client configuration of a CRD; ok says whether it declares the strategy
// Webhook.
func conversionConfig(object *unstructured.Unstructured) (config map[string]any, ok bool, err error) {
	if strategy, _, _ := unstructured.NestedString(object.Object, "spec", "conversion",
		"strategy"); strategy != "Webhook" {
		return nil, false, nil
	}
	config, _, err = unstructured.NestedMap(object.Object, "spec", "conversion", "webhook", "clientConfig")
	if config == nil {
		config = map[string]any{}
	}
	return config, true, err
}

// encodeBundle returns the bundle as documents have it, in base64.
func encodeBundle(bundle []byte) string { return base64.StdEncoding.EncodeToString(bundle) }

// at looks up a JSON pointer without escapes.
func at(object map[string]any, pointer string) (any, bool) {
	var fields []string
	for part := range bytes.SplitSeq([]byte(pointer[1:]), []byte("/")) {
		fields = append(fields, string(part))
	}
	value, found, err := unstructured.NestedFieldNoCopy(object, fields...)
	return value, found && err == nil
}
