package admission

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/protection"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// Kind describes a kind of ours to the webhooks; internal/registry lists the kinds.
type Kind struct {
	// Group is its API group; Name is the kind's name, such as CloneSet; Plural is that of its resource.
	Group, Name, Plural string
	// Cluster says that its objects are in no namespace.
	Cluster bool
	// Version is the one in which the manager reads its objects, and the API server stores them; empty stands
	// for v1beta1. A kind that is stored as v1alpha1 has no other version.
	Version string
	// Gates must be on. Otherwise the kind's controller does not run, and its objects are refused with
	// OffCode; 0 stands for 403.
	Gates   Gates
	OffCode int32
	// Conversion converts between v1alpha1 and v1beta1. It is nil if both have the same schema; the API
	// server then converts by itself (OPS-070).
	Conversion Conversion
	// Webhooks makes the webhooks for its objects.
	Webhooks func(*Environment) Webhooks
}

// Definition is the name of the kind's CustomResourceDefinition.
func (k *Kind) Definition() string { return k.Plural + "." + k.Group }

// Stored is the kind in the version in which its objects are stored.
func (k *Kind) Stored() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.Group, Version: cmp.Or(k.Version, beta), Kind: k.Name}
}

// Versions are all that the kind is served in.
func (k *Kind) Versions() []string {
	if k.Version == alpha {
		return []string{alpha}
	}
	return []string{alpha, beta}
}

// path is that of a webhook of the kind.
func (k *Kind) path(verb string) string {
	return "/" + verb + "-" + strings.ReplaceAll(k.Group, ".", "-") + "-" + strings.ToLower(k.Name)
}

// Gates are lists of feature gates. Of each list one must be on.
type Gates [][]featuregate.Feature

// Off returns the first list of which all gates are off; nil if there is none.
func (g Gates) Off(gates *features.Gates) []featuregate.Feature {
	for _, list := range g {
		if !slices.ContainsFunc(list, gates.Enabled) {
			return list
		}
	}
	return nil
}

// Webhooks of a kind: Mutate and Validate handle creation and update, Delete handles deletion. Nil means that
// there is none.
type Webhooks struct{ Mutate, Validate, Delete admission.HandlerFunc }

// handlers returns the handlers of the kind, by path. If a gate is off that must be on, creation and update
// are refused, except for objects that are being deleted.
func (k *Kind) handlers(e *Environment) map[string]admission.Handler {
	webhooks, off, handlers := k.Webhooks(e), k.Gates.Off(e.Gates), map[string]admission.Handler{}
	for verb, handle := range map[string]admission.HandlerFunc{
		"mutate":   webhooks.Mutate,
		"validate": webhooks.Validate,
	} {
		if handle == nil {
			continue
		}
		handlers[k.path(verb)] = limited(func(ctx context.Context,
			request admission.Request) admission.Response {
			switch written := request.Operation == admissionv1.Create ||
				request.Operation == admissionv1.Update; {
			case request.Operation == admissionv1.Delete && verb == "validate" && webhooks.Delete != nil:
				return webhooks.Delete(ctx, request)
			case !written || request.SubResource != "" || off != nil && leaving(&request):
				return admission.Allowed("")
			case off != nil:
				return gateOff(cmp.Or(k.OffCode, http.StatusForbidden), off)
			}
			return handle(ctx, request)
		})
	}
	return handlers
}

// Environment is what the webhooks of kinds are made with.
type Environment struct {
	Options
	judge TemplateValidator
	// cached reads from the manager's caches, live from the API server.
	cached, live client.Reader
	mapper       meta.RESTMapper
	announcer    announcer
	namespaces   *namespaces
	// writer writes to the API server; it is asked for dry runs alone.
	writer client.Writer
	// guard judges deletions of protected objects.
	guard *protection.Guard
}
