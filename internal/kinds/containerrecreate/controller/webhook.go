package controller

import (
	"context"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate"
)

// recreateWebhook admits ContainerRecreateRequests of both versions.
type recreateWebhook struct {
	// live reads from the API server, because the facts that are written into a request must describe the
	// current pod.
	live client.Reader
	// cached is sufficient for warnings.
	cached client.Reader
}

// ContainerRecreateRequests returns the webhook of the kind.
func ContainerRecreateRequests(e *framework.Environment) framework.Webhooks {
	w := &recreateWebhook{live: e.APIReader, cached: e.Cache}
	return framework.Webhooks{Mutate: w.mutate}
}

func (w *recreateWebhook) mutate(ctx context.Context, request admission.Request) admission.Response {
	updated, hub, warnings, err := readRecreate(request.Object.Raw, &request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	var response admission.Response
	if request.Operation == admissionv1.Update {
		old, oldHub, _, err := readRecreate(request.OldObject.Raw, &request)
		if err != nil {
			return framework.Undecodable(&request, fmt.Errorf("stored object: %w", err))
		}
		response = admission.Allowed("")
		if refusal := containerrecreate.CheckUpdate(hub, oldHub, updated, old); refusal != nil {
			switch fills, err := w.fills(ctx, request.Namespace, hub, oldHub); {
			case err != nil:
				return framework.Refuse(http.StatusInternalServerError, err.Error())
			case !fills || updated != old:
				response = framework.Refuse(refusal.Code, refusal.Message)
			}
		}
	} else {
		response = w.create(ctx, &request, hub)
	}

	return response.WithWarnings(warnings...)
}

// readRecreate decodes a request in the version in which it is written. acquired is the v1alpha1 annotation
// RecreateUnreadyAcquired.
func readRecreate(
	raw []byte, request *admission.Request,
) (acquired string, hub *appsv1beta1.ContainerRecreateRequest, warnings []string, err error) {
	document, err := framework.DecodeDocument(raw)
	if err != nil {
		return "", nil, nil, fmt.Errorf("reading the object: %w", err)
	}
	switch version := framework.WrittenVersion(document, request); version {
	case appsv1alpha1.GroupVersion.Version:
		given := &appsv1alpha1.ContainerRecreateRequest{}
		if _, err := framework.Decode(raw, given); err != nil {
			return "", nil, nil, err
		}
		for _, key := range given.UnreadableAnnotations() {
			warnings = append(warnings, fmt.Sprintf("annotation %s cannot be read and means nothing", key))
		}
		return given.Annotations[pub.RecreateUnreadyAcquired], given.ToV1beta1(), warnings, nil
	case appsv1beta1.GroupVersion.Version:
		given := &appsv1beta1.ContainerRecreateRequest{}
		_, err := framework.Decode(raw, given)
		return "", given, nil, err
	default:
		return "", nil, nil, fmt.Errorf("version %q of ContainerRecreateRequest is not known", version)
	}
}

func (w *recreateWebhook) create(
	ctx context.Context, request *admission.Request, hub *appsv1beta1.ContainerRecreateRequest,
) admission.Response {
	wrong := containerrecreate.Check(hub)
	if hub.Spec.PodName == "" {
		return framework.Refuse(wrong.Code, wrong.Message)
	}
	// Errors of the request itself and those about its pod are reported together.
	also := func(refusal *containerrecreate.Refusal) admission.Response {
		all := containerrecreate.Both(wrong, refusal)
		return framework.Refuse(all.Code, all.Message)
	}
	bad := func(format string, args ...any) *containerrecreate.Refusal {
		return &containerrecreate.Refusal{Code: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
	}
	pod, node, err := Facts(ctx, w.live,
		types.NamespacedName{Namespace: request.Namespace, Name: hub.Spec.PodName})
	switch {
	case err != nil:
		return framework.Refuse(http.StatusInternalServerError, err.Error())
	case pod == nil:
		return also(bad("spec.podName: no found Pod named %s in namespace %s",
			hub.Spec.PodName, request.Namespace))
	}
	if refusal := containerrecreate.CheckPod(pod); refusal != nil {
		return also(refusal)
	}
	if node == nil {
		return also(bad("no found Node of Pod %s", hub.Spec.PodName))
	}
	accepted, patch, refusal := containerrecreate.Accept(hub, hub.Labels != nil, pod)
	if refusal != nil || wrong != nil {
		return also(refusal)
	}
	if framework.FromAPIServer(ctx) {
		_, facts, refusal := containerrecreate.Fill(accepted, pod, node.Labels)
		if refusal != nil {
			return also(refusal)
		}
		patch = append(patch, facts...)
	}
	ahead, most := w.ahead(ctx, pod), mostAhead
	if hub.Annotations[pub.RecreateAfterRestarts] != "" {
		most *= 2 // for a liveness probe, which may be of another container than all those
	}
	if ahead >= most {
		return framework.Refuse(http.StatusTooManyRequests,
			fmt.Sprintf("%d other ContainerRecreateRequests for Pod %s are not finished: no more than %d are queued", ahead, pod.Name, most))
	}
	response := admission.Patched("", patch...)
	// The names are omitted, because anyone who can reach the port of the webhook would see them.
	if ahead > 0 {
		return response.WithWarnings(fmt.Sprintf(
			"another ContainerRecreateRequest for Pod %s is not finished: this one waits for it (kubectl get crr -n %s -l %s=true)",
			pod.Name, pod.Namespace, pub.RecreateActive,
		))
	}
	return response
}

// fills reports whether an update adds the facts about the pod, which are checked against the API server.
func (w *recreateWebhook) fills(
	ctx context.Context, namespace string, updated, old *appsv1beta1.ContainerRecreateRequest,
) (bool, error) {
	if !containerrecreate.Unfilled(old) || containerrecreate.Unfilled(updated) {
		return false, nil
	}

	pod, node, err := Facts(ctx, w.live,
		types.NamespacedName{Namespace: namespace, Name: old.Spec.PodName})
	if err != nil {
		return false, err
	}

	var labels map[string]string
	if node != nil {
		labels = node.Labels
	}
	return containerrecreate.Fills(updated, old, pod, labels), nil
}

// mostAhead is the maximum number of unfinished requests for a pod before a new one. The daemon handles each
// of them, and may only send a few requests per second to the API server.
const mostAhead = 10

// ahead counts the other unfinished requests for the pod. It does not wait for those that are not in the
// cache yet.
func (w *recreateWebhook) ahead(ctx context.Context, pod *corev1.Pod) int {
	var list appsv1beta1.ContainerRecreateRequestList
	err := w.cached.List(ctx, &list, client.InNamespace(pod.Namespace),
		client.MatchingLabels{
			pub.RecreatePodUID: string(pod.UID),
			pub.RecreateActive: "true",
		}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return 0 // better no warning than a wrong one
	}

	unfinished := 0
	for i := range list.Items {
		if other := &list.Items[i]; !restart.Completed(other) && other.DeletionTimestamp == nil {
			unfinished++
		}
	}

	return unfinished
}
