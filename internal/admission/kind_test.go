package admission

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

// Registered are the kinds of the registry.
var Registered []framework.Kind

// Paths that the configurations of other releases have too (OPS-060).
const (
	mutateCloneSetPath         = "/mutate-apps-kruise-io-cloneset"
	validateCloneSetPath       = "/validate-apps-kruise-io-cloneset"
	validateStatefulSetPath    = "/validate-apps-kruise-io-statefulset"
	validateDaemonSetPath      = "/validate-apps-kruise-io-daemonset"
	mutateRecreatePath         = "/mutate-apps-kruise-io-containerrecreaterequest"
	mutateSidecarSetPath       = "/mutate-apps-kruise-io-sidecarset"
	validateSidecarSetPath     = "/validate-apps-kruise-io-sidecarset"
	validateWorkloadSpreadPath = "/validate-apps-kruise-io-workloadspread"
	mutateNodeImagePath        = "/mutate-apps-kruise-io-nodeimage"
	validateBudgetPath         = "/validate-policy-kruise-io-podunavailablebudget"
	validateNodeImagePath      = "/validate-apps-kruise-io-nodeimage"
	mutatePullJobPath          = "/mutate-apps-kruise-io-imagepulljob"
	validatePullJobPath        = "/validate-apps-kruise-io-imagepulljob"
	mutatePullListPath         = "/mutate-apps-kruise-io-imagelistpulljob"
	validatePullListPath       = "/validate-apps-kruise-io-imagelistpulljob"
)

// registered are the handlers of the kinds of the registry, with the default gates.
func registered(t *testing.T, pods *pod.Chain, removals *pod.Disruptions) map[string]admission.Handler {
	t.Helper()
	options := ofRegistry(t, "")
	return fitting(options.handlers(&framework.Environment{Gates: options.Gates, Protect: options.protects}, pods, removals))
}

// fitting gives reviews the resource, the kind and the namespace that the handlers are for.
func fitting(handlers map[string]admission.Handler) map[string]admission.Handler {
	for path, of := range (Options{Kinds: Registered}).subjects() {
		if handler := handlers[path]; handler != nil {
			handlers[path] = admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
				request.Resource.Group, request.Resource.Resource = of.group, of.resource
				request.Kind.Group, request.Kind.Kind = of.group, of.kind
				if request.Namespace = "shop"; of.cluster {
					request.Namespace = ""
				}
				return handler.Handle(ctx, request)
			})
		}
	}
	return handlers
}

// ofRegistry are the options with the kinds of the registry, the gates of the list, and a guard.
func ofRegistry(t *testing.T, list string) Options {
	t.Helper()
	return Options{Environment: &framework.Environment{Gates: webhooktest.Gates(t, list)}, Kinds: Registered, guard: guardOf(t, list)}
}

// elementOf returns the member of an object, or the item of a list, at the key.
func elementOf(value any, key string) (any, bool) {
	switch value := value.(type) {
	case framework.Document:
		found, ok := value[key]
		return found, ok
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(value) {
			return value[i], true
		}
	}
	return nil, false
}

// longer returns a path that is longer by one key.
func longer(path []string, key string) []string { return append(slices.Clip(path), key) }
