package configuration

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
	"sync"
	"time"

	"golang.org/x/time/rate"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// templateAnnotation holds the original list of webhooks, as JSON.
const templateAnnotation = "template"

// convertPath is the path at which CRDs are converted.
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

// Options define which objects are updated, and how.
type Options struct {
	// Target is what the API server calls.
	Target Target
	// Mutating and Validating name the webhook configurations. Paths are the paths that this manager knows;
	// false means that the feature is off, so that the leader drops the entry (OPS-064).
	Mutating, Validating string
	Paths                map[string]bool
	// Scopes maps the names of entries to the requests that they match. It is for entries that are shipped
	// without match conditions, or derived: the leader writes their conditions.
	Scopes map[string]Scope
	// Derived are entries that the leader creates. A replica that starts is not ready before they exist.
	Derived []Derived
	// Check returns why a match condition must not be written. If it is nil, every condition is written.
	Check func(expression string) error
	// Recent defines how the pods of recent rules are sent, which are rules that were just accepted; it is
	// nil if there are no such rules.
	Recent *Recent
	// CRDs are the definitions that this manager converts.
	CRDs []string
	// Elected is closed on the leader; nil means that this process always leads.
	Elected <-chan struct{}
	// External means that another program publishes the CA: objects are only compared, not written (OPS-050).
	External bool
}

// Scope is what the leader writes into an entry.
type Scope struct {
	// Conditions returns the match conditions of the entry. While they are unknown, the entry stays as it is.
	Conditions func() (conditions []admissionv1.MatchCondition, known bool)
	// Policy is the failurePolicy of the entry with these conditions.
	Policy admissionv1.FailurePolicyType
}

// Publisher updates webhook configurations and CRDs. Objects are read and patched as documents, so that
// fields of other versions are preserved.
//
// Several managers may share the objects: replicas, an older and a newer release during an upgrade, and
// OpenKruise. So that none reverts what another did, each changes only entries that it serves itself, never
// changes unknown ones, and only the leader adds and drops entries.
type Publisher struct {
	Options
	client  client.Client
	clock   clock.Clock
	objects []object
	// firstSeen records when each recent rule was first seen, by the clock of this process.
	firstSeen map[recentRule]time.Time

	// announcing is held while a recent rule is written.
	announcing sync.Mutex
	// announcements limits the announcements whose rules are written one by one. Those above the limit are
	// announced together, as one rule for all pods, which has been served since wideSince.
	announcements *rate.Limiter
	together      matchconditions.Together[string, struct{}]
	wideSince     time.Time
}

// ErrLostRace means that somebody else changed an object since it was read. The caller reads it again.
var ErrLostRace = errors.New("another replica changed the object meanwhile")

// Report is the result of publishing.
type Report struct {
	// Notes are for the log.
	Notes []string
	// Unserved are entries that call this manager but have no handler.
	Unserved []Unserved
	// Mismatched are objects with another authority, if the manager may not change them.
	Mismatched []string
	// Lacking is what a starting replica waits for before it is ready.
	Lacking string
}

// Unserved is an entry of a webhook configuration, or the conversion of a CRD.
type Unserved struct{ Object, Name, Path string }

// String returns the entry, for the log.
func (u Unserved) String() string {
	return fmt.Sprintf("%s of %s: nothing here handles %s", u.Name, u.Object, u.Path)
}

// Target defines where the API server finds the webhooks.
type Target struct {
	// Namespace and Service name the Service, on port 443.
	Namespace, Service string
	// Host, if not empty, is a host name or address to call instead, on Port.
	Host string
	Port int
}

// HostName returns the host name for which the serving certificate is issued.
func (t Target) HostName() string {
	if t.Host != "" {
		return t.Host
	}
	return t.Service + "." + t.Namespace + ".svc"
}

// fill sets Service or URL in a client configuration, with the path of the handler.
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

// object is one object that carries the bundle. build returns its fields as they should be, by JSON pointer.
type object struct {
	kind  schema.GroupVersionKind
	name  string
	build func(object *unstructured.Unstructured, bundle []byte,
		found *Report) (fields map[string]any, err error)
}

// New returns a Publisher. The client must read from the API server, not from a cache, and needs rights only
// for the objects that the options name.
func New(c client.Client, clock clock.Clock, options Options) *Publisher {
	p := &Publisher{
		Options:       options,
		client:        c,
		clock:         clock,
		announcements: rate.NewLimiter(announcementsASecond, announcementsAtOnce),
		together:      matchconditions.Together[string, struct{}]{Limit: 2 * servedTime},
	}
	if p.Check == nil {
		p.Check = func(string) error { return nil }
	}

	p.objects = []object{
		{mutatingKind, options.Mutating, p.webhooks},
		{validatingKind, options.Validating, p.webhooks},
	}
	for _, name := range options.CRDs {
		p.objects = append(p.objects, object{crdKind, name, p.conversion})
	}

	return p
}

// Each calls a function with the kind and name of each object that carries the bundle.
func (p *Publisher) Each(do func(kind schema.GroupVersionKind, name string)) {
	for _, object := range p.objects {
		do(object.kind, object.name)
	}
}

// Publish patches the objects that differ. It skips objects that do not exist, and continues after one that
// cannot be patched.
func (p *Publisher) Publish(ctx context.Context, bundle []byte) (Report, error) {
	var found Report
	var errs []error
	for _, object := range p.objects {
		if err := p.publishOne(ctx, object, bundle, &found); err != nil {
			errs = append(errs, fmt.Errorf("bringing %s %s in line: %w", object.kind.Kind, object.name, err))
		}
	}
	return found, errors.Join(errs...)
}

// Rescope is like Publish, but only for the webhook configurations, and only if this manager writes them.
func (p *Publisher) Rescope(ctx context.Context, bundle []byte) error {
	if p.External || !p.leads() {
		return nil
	}

	for _, object := range p.objects {
		if object.kind != mutatingKind && object.kind != validatingKind {
			continue
		}
		if err := p.publishOne(ctx, object, bundle, &Report{}); err != nil {
			return fmt.Errorf("bringing %s %s in line: %w", object.kind.Kind, object.name, err)
		}
	}

	return nil
}

func (p *Publisher) publishOne(ctx context.Context, object object, bundle []byte, found *Report) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.kind)
	if err := p.client.Get(ctx, types.NamespacedName{Name: object.name}, live); err != nil {
		return client.IgnoreNotFound(err)
	}

	fields, err := object.build(live.DeepCopy(), bundle, found)
	if err != nil || p.External {
		return err
	}

	for pointer, value := range fields {
		if present, found := at(live.Object, pointer); found && equality.Semantic.DeepEqual(present, value) {
			delete(fields, pointer)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	if err := p.patch(ctx, live, fields); err != nil {
		return err
	}

	found.Notes = append(found.Notes, "updated "+object.kind.Kind+" "+object.name)
	return nil
}

// patch sets fields of an object, given by JSON pointer. It returns [ErrLostRace] if the object was changed
// since it was read.
func (p *Publisher) patch(ctx context.Context, live *unstructured.Unstructured, fields map[string]any) error {
	operations := []jsonpatch.Operation{
		jsonpatch.NewOperation("replace", "/metadata/resourceVersion", live.GetResourceVersion()),
	}
	for pointer, value := range fields {
		operations = append(operations, jsonpatch.NewOperation("add", pointer, value))
	}

	body, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}

	err = p.client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, body))
	if apierrors.IsConflict(err) {
		return ErrLostRace
	}
	return err
}

// carries reports whether a bundle contains all CAs. It may contain more: cert-manager's injector keeps the
// previous CA, so that calls succeed while a CA changes.
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
func (p *Publisher) adopt(config map[string]any, path string, bundle []byte, what string, found *Report) {
	if present, _ := config["caBundle"].(string); p.External && present != encodeBundle(bundle) {
		if data, err := base64.StdEncoding.DecodeString(present); err != nil || !carries(data, bundle) {
			found.Mismatched = append(found.Mismatched, what+" does not carry the authority of the Secret")
		}
	}
	p.Target.fill(config, path, bundle)
}

func (p *Publisher) leads() bool {
	if p.Elected == nil {
		return true
	}
	select {
	case <-p.Elected:
		return true
	default:
		return false
	}
}

// webhooks returns the list of entries: existing ones, then those of the template that are missing. An entry
// for an unknown path is left as it is and reported: another manager may serve it, and without it requests
// would be admitted unchecked.
func (p *Publisher) webhooks(
	object *unstructured.Unstructured, bundle []byte, found *Report,
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
		if !ok || name == "" || seen[name] { // API servers refuse a list with an entry without a name
			continue
		}

		seen[name] = true
		path, live := pathOf(entry), i < len(present)
		active, known := p.Paths[path]

		switch {
		case !known && live:
			found.Unserved = append(found.Unserved, Unserved{object.GetName(), name, path})
			entries = append(entries, entry)
		case active && (live || p.leads()):
			config, _ := entry["clientConfig"].(map[string]any)
			p.adopt(config, path, bundle, name+" of "+object.GetName(), found)
			if scope, ok := p.Scopes[name]; ok && p.leads() {
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
	if p.Recent != nil && p.Paths[p.Recent.Path] && object.GetKind() == mutatingKind.Kind {
		rules := recentOf(object)
		if p.leads() {
			rules = p.recall(rules)
			if err := rules.remember(object, fields); err != nil {
				return nil, err
			}
		}
		entries = p.Recent.weave(entries, rules)
	}

	if len(entries)+len(present) > 0 {
		fields["/webhooks"] = entries
	}

	return fields, nil
}

// narrow limits an entry to the requests that match all conditions, and sets its failurePolicy. A condition
// that API servers cannot evaluate would make them reject these requests. It is omitted: the handlers can
// deal with requests that need not have been sent.
func (p *Publisher) narrow(
	entry map[string]any, conditions []admissionv1.MatchCondition, policy admissionv1.FailurePolicyType,
	found *Report,
) {
	list := make([]any, 0, len(conditions))
	for _, c := range conditions {
		if err := p.Check(c.Expression); err != nil {
			found.Notes = append(found.Notes,
				fmt.Sprintf("condition %s of webhook %s is left out: %v", c.Name, entry["name"], err))
			continue
		}
		list = append(list, map[string]any{"name": c.Name, "expression": c.Expression})
	}
	entry["matchConditions"], entry["failurePolicy"] = list, string(policy)
}

// pathOf returns the path that an entry calls, by Service or by URL.
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

// conversion returns the conversion settings of a CRD that declares the strategy Webhook, and nothing for
// others.
func (p *Publisher) conversion(
	object *unstructured.Unstructured, bundle []byte, found *Report,
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

// conversionConfig returns the client configuration of a CRD; ok reports whether it declares the strategy
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

// encodeBundle encodes the bundle in base64, as documents contain it.
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
