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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
)

// Paths of the webhooks of pods, and names of the entries whose conditions the manager writes. Two entries
// call the same handler: one for the pods that always need it, the other for those that need it because of
// installed objects, see otherPods. The second entry does not match a pod that the first has changed.
const (
	mutatePodPath    = "/mutate-pod"
	mutatePodName    = "mpod.kb.io"
	mutatePodAllPath = "/mutate-pod-all"
	mutatePodAllName = "mpod-all.kb.io"
	// For pods of recent rules, instead of mutatePodAllName, see recent.go.
	mutatePodRecentPath = "/mutate-pod-recent"
	mutatePodRecentName = "mpod-recent.kb.io"

	validatePodPath = "/validate-pod"
)

// podPaths are all paths of pod webhooks.
var podPaths = []string{mutatePodPath, mutatePodAllPath, mutatePodRecentPath, validatePodPath}

// otherPods returns the match conditions of mutatePodAllPath. They match pods without the readiness gate
// KruisePodReady if all pods get it, and pods for which any of the given conditions is true, those of
// SidecarSets, WorkloadSpreads, PersistentPodStates and probes. A pod that is sent twice does not change the
// second time, and is put into a subset only the first time.
func otherPods(
	gateAll bool, asked ...admissionregistrationv1.MatchCondition,
) []admissionregistrationv1.MatchCondition {
	if gateAll {
		asked = append([]admissionregistrationv1.MatchCondition{condition("without-the-gate",
			"!has(object.spec.readinessGates) || !object.spec.readinessGates.exists(g, g.conditionType == 'KruisePodReady')",
		)}, asked...)
	}
	var names, expressions []string
	for _, of := range asked {
		if of.Expression != "false" {
			names, expressions = append(names, of.Name), append(expressions, of.Expression)
		}
	}
	if len(names) == 0 {
		return []admissionregistrationv1.MatchCondition{condition("none-asked-for", "false")}
	}

	name := strings.Join(names, "-or-")
	if len(name) > validation.LabelValueMaxLength { // the maximum length of a name
		name = "asked-for-by-several"
	}

	return []admissionregistrationv1.MatchCondition{condition(name, strings.Join(expressions, " || "))}
}

// podTime is how long the creation of a pod may wait for requests to the API server.
const podTime = 5 * time.Second

// mutatePod changes pods when they are created, and only then. again means that the other entry also matches
// pods that are put into subsets.
func mutatePod(chain *pod.Chain, again bool) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		if request.Operation != admissionv1.Create || request.SubResource != "" {
			return admission.Allowed("")
		}

		ctx, cancel := context.WithTimeout(ctx, podTime)
		defer cancel()
		operations, warnings, err := chain.Mutate(ctx, pod.Request{
			Raw:       request.Object.Raw,
			Namespace: request.Namespace,
			DryRun:    framework.IsDryRun(&request),
			Again:     again,
		})
		if errs := fieldErrors(err); len(errs) > 0 {
			return framework.Invalid(&request, framework.Causes(errs)).WithWarnings(warnings...)
		}

		var internal *pod.InternalError
		switch {
		case errors.As(err, &internal):
			return framework.Refuse(http.StatusInternalServerError, err.Error()).WithWarnings(warnings...)
		case err != nil:
			return framework.Refuse(http.StatusBadRequest, err.Error()).WithWarnings(warnings...)
		}

		return admission.Patched("", operations...).WithWarnings(warnings...)
	}
}

// validatePod handles deletions, evictions and changes of pods. live reads a pod that is evicted, of which
// the request has only the name, and one that a budget may protect, because the cache of pods is slim and may
// lag. guarded reports whether a namespace has budgets.
func validatePod(
	chain *pod.Disruptions, live client.Reader, guarded func(namespace string) bool,
) admission.HandlerFunc {
	return func(ctx context.Context, request admission.Request) admission.Response {
		ctx, cancel := context.WithTimeout(ctx, podTime)
		defer cancel()
		disruption, answer := disruptionOf(ctx, &request, live, guarded)
		if disruption == nil {
			return answer
		}

		err := chain.Admit(ctx, disruption)
		var refusal *pod.Refused
		var internal *pod.InternalError

		switch {
		case err == nil:
			return admission.Allowed("")
		case errors.As(err, &internal):
			return framework.Refuse(http.StatusInternalServerError, err.Error())
		case errors.As(err, &refusal) && disruption.By == policyv1beta1.Evict:
			return notNow(refusal)
		}

		return framework.Refuse(http.StatusForbidden, err.Error())
	}
}

// disruptionOf reads what a request does to a pod. If that is no disruption, it returns the response instead.
func disruptionOf(
	ctx context.Context, request *admission.Request, live client.Reader, guarded func(namespace string) bool,
) (*pod.Disruption, admission.Response) {
	d := &pod.Disruption{Pod: &corev1.Pod{}, User: request.UserInfo.Username, DryRun: framework.IsDryRun(request)}
	before := request.OldObject.Raw
	switch whole := request.SubResource == ""; {
	case whole && request.Operation == admissionv1.Delete:
		if len(before) == 0 { // deletion of a collection: its pods follow one by one
			return nil, admission.Allowed("")
		}
		d.By = policyv1beta1.Delete
	case (whole || request.SubResource == "resize") && request.Operation == admissionv1.Update:
		by, err := podunavailablebudget.Changed(before, request.Object.Raw)
		if err != nil {
			return nil, framework.Refuse(http.StatusBadRequest, err.Error())
		}
		if by == "" {
			return nil, admission.Allowed("")
		}
		d.By = by
	case request.SubResource == "eviction" && request.Operation == admissionv1.Create:
		var eviction policyv1.Eviction // the older version has the same fields
		if err := json.Unmarshal(request.Object.Raw, &eviction); err != nil {
			return nil, framework.Refuse(http.StatusBadRequest, "reading the eviction: "+err.Error())
		}
		d.By = policyv1beta1.Evict
		d.DryRun = d.DryRun || eviction.DeleteOptions != nil && len(eviction.DeleteOptions.DryRun) > 0
		err := live.Get(ctx,
			types.NamespacedName{Namespace: request.Namespace, Name: cmp.Or(request.Name, eviction.Name)},
			d.Pod)
		if apierrors.IsNotFound(err) {
			return nil, admission.Allowed("")
		}
		if err != nil && guarded(request.Namespace) {
			return nil, framework.Refuse(http.StatusInternalServerError, "the pod could not be read: "+err.Error())
		}
		if err != nil { // booking a removal never rejects it
			return nil, admission.Allowed("").WithWarnings("the pod could not be read: " + err.Error())
		}
		return d, admission.Response{}
	default:
		return nil, admission.Allowed("")
	}

	if err := json.Unmarshal(before, d.Pod); err != nil {
		return nil, framework.Refuse(http.StatusBadRequest, "reading the pod: "+err.Error())
	}
	if !guarded(request.Namespace) {
		return d, admission.Response{}
	}

	// Budgets only book pods that exist, as they are: anyone who can reach the port can invent a pod, and
	// would prevent disruptions of others.
	given := d.Pod.UID
	// A pod of a deleted collection has no name in the request.
	key := types.NamespacedName{Namespace: request.Namespace, Name: cmp.Or(request.Name, d.Pod.Name)}
	d.Pod = &corev1.Pod{}

	switch err := live.Get(ctx, key, d.Pod); {
	case apierrors.IsNotFound(err) || err == nil && d.Pod.UID != given:
		return nil, admission.Allowed("") // the pod is gone
	case err != nil:
		return nil, framework.Refuse(http.StatusInternalServerError, "the pod could not be read: "+err.Error())
	}

	return d, admission.Response{}
}

// pendingSeconds is when to retry the eviction of a pod whose budget is still being counted; the API server
// uses the same value for its own budgets.
const pendingSeconds = 10

// notNow rejects an eviction like the API server does for its own budgets, so that clients that drain a node
// wait and retry.
func notNow(refusal *pod.Refused) admission.Response {
	response := framework.Refuse(http.StatusTooManyRequests, refusal.Message)
	response.Result.Details = &metav1.StatusDetails{
		Causes: []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: refusal.Message}},
	}
	if refusal.Pending {
		response.Result.Details.RetryAfterSeconds = pendingSeconds
	}
	return response
}

// fieldErrors returns the field errors of a list of errors.
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
