package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/pod"
)

// Paths of the webhooks of pods, and names of the entries that the manager narrows (OPS-060). Two entries call the same handler: one sends
// the pods that always need it, the other those that need it because of what is installed, see otherPods. The second does not send a pod
// that the first has changed.
const (
	mutatePodPath    = "/mutate-pod"
	mutatePodName    = "mpod.kb.io"
	mutatePodAllPath = "/mutate-pod-all"
	mutatePodAllName = "mpod-all.kb.io"
	// Pods of recent rules are sent here instead of by mutatePodAllName, see recent.go.
	mutatePodRecentPath = "/mutate-pod-recent"
	mutatePodRecentName = "mpod-recent.kb.io"

	validatePodPath      = "/validate-pod"
	validateEvictionName = "vpodeviction.kb.io"
)

// podPaths are all paths of pods.
var podPaths = []string{mutatePodPath, mutatePodAllPath, mutatePodRecentPath, validatePodPath}

// otherPods are the match conditions of mutatePodAllPath: pods without the readiness gate KruisePodReady if all pods get it (CRR-087), and
// pods for which the expressions of SidecarSets (SS-080) or WorkloadSpreads (WS-050) are true; otherwise none. A pod that is sent twice
// does not change the second time (SS-107), and is put into a subset only the first time.
func otherPods(gateAll bool, sidecarSets, spreads string) []admissionregistrationv1.MatchCondition {
	const without = "!has(object.spec.readinessGates) || !object.spec.readinessGates.exists(g, g.conditionType == 'KruisePodReady')"
	var names, expressions []string
	for _, asks := range []struct{ name, expression string }{{"without-the-gate", without}, {"of-sidecarsets", sidecarSets},
		{"of-workloadspreads", spreads}} {
		if asks.expression != "false" && (asks.expression != without || gateAll) {
			names, expressions = append(names, asks.name), append(expressions, asks.expression)
		}
	}
	if len(names) == 0 {
		return []admissionregistrationv1.MatchCondition{{Name: "none-asked-for", Expression: "false"}}
	}
	return []admissionregistrationv1.MatchCondition{{Name: strings.Join(names, "-or-"), Expression: strings.Join(expressions, " || ")}}
}

// podTime is how long the creation of a pod may wait for requests to the API server.
const podTime = 5 * time.Second

// mutatePod changes pods when they are created, and only then (SS-086). again: pods that are to be put into subsets are sent by the other
// entry too.
func mutatePod(chain *pod.Chain, again bool) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		if request.Operation != admissionv1.Create || request.SubResource != "" {
			return admission.Allowed("")
		}
		ctx, cancel := context.WithTimeout(ctx, podTime)
		defer cancel()
		operations, warnings, err := chain.Mutate(ctx, pod.Request{Raw: request.Object.Raw, Namespace: request.Namespace,
			DryRun: triedOnly(&request), Again: again})
		if errs := fieldErrors(err); len(errs) > 0 {
			return invalid(&request, causesOf(errs)).WithWarnings(warnings...)
		}
		var internal *pod.InternalError
		switch {
		case errors.As(err, &internal):
			return refused(http.StatusInternalServerError, err.Error()).WithWarnings(warnings...)
		case err != nil:
			return refused(http.StatusBadRequest, err.Error()).WithWarnings(warnings...)
		}
		return admission.Patched("", operations...).WithWarnings(warnings...)
	}
}

// triedOnly tells whether the request is a dry run: by its own flag, or by its options (WS-050, WS-101).
func triedOnly(request *admission.Request) bool {
	var options struct {
		DryRun []string `json:"dryRun"`
	}
	return request.DryRun != nil && *request.DryRun || json.Unmarshal(request.Options.Raw, &options) == nil && len(options.DryRun) > 0
}

// validatePod handles the deletion and eviction of pods (WS-100). live reads a pod that is evicted: the request has only its name, and the
// cache of pods is slim and filled only on the leader.
func validatePod(chain *pod.Removals, live client.Reader) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		ctx, cancel := context.WithTimeout(ctx, podTime)
		defer cancel()
		removal := &pod.Removal{Pod: &corev1.Pod{}, DryRun: triedOnly(&request)}
		switch {
		case request.Operation == admissionv1.Delete && request.SubResource == "":
			if len(request.OldObject.Raw) == 0 { // deletion of a collection: its pods are sent one by one
				return admission.Allowed("")
			}
			if err := json.Unmarshal(request.OldObject.Raw, removal.Pod); err != nil {
				return refused(http.StatusBadRequest, "reading the pod: "+err.Error())
			}
		case request.Operation == admissionv1.Create && request.SubResource == "eviction":
			var eviction policyv1.Eviction // the older version has the same fields
			if err := json.Unmarshal(request.Object.Raw, &eviction); err != nil {
				return refused(http.StatusBadRequest, "reading the eviction: "+err.Error())
			}
			removal.Eviction = true
			removal.DryRun = removal.DryRun || eviction.DeleteOptions != nil && len(eviction.DeleteOptions.DryRun) > 0
			err := live.Get(ctx, types.NamespacedName{Namespace: request.Namespace, Name: cmp.Or(request.Name, eviction.Name)}, removal.Pod)
			if apierrors.IsNotFound(err) {
				return admission.Allowed("")
			}
			if err != nil { // booking removals refuses none (WS-106)
				return admission.Allowed("").WithWarnings("the pod could not be read: " + err.Error())
			}
		default:
			return admission.Allowed("")
		}
		if err := chain.Admit(ctx, removal); err != nil {
			return refused(http.StatusForbidden, err.Error())
		}
		return admission.Allowed("")
	}
}

// fieldErrors are the errors that name fields, if the error is a list of such.
func fieldErrors(err error) field.ErrorList {
	var list utilerrors.Aggregate
	if !errors.As(err, &list) {
		return nil
	}
	var errs field.ErrorList
	for _, one := range list.Errors() {
		var named *field.Error
		if errors.As(one, &named) {
			errs = append(errs, named)
		}
	}
	return errs
}
