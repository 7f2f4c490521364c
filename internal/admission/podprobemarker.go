package admission

import (
	"context"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
)

// PodProbeMarkers makes the webhooks of the kind (PPM-020 to PPM-031).
func PodProbeMarkers(*Environment) Webhooks {
	return Webhooks{
		Mutate: defaulting(func(object document,
			_ bool) []jsonpatch.Operation {
			return podprobemarker.Default(object)
		}),
		Validate: validateMarker,
	}
}

// NodePodProbes makes no webhooks: who may write NodePodProbes may run commands in every pod, and what is not
// to be carried out the node daemon refuses.
func NodePodProbes(*Environment) Webhooks { return Webhooks{} }

func validateMarker(_ context.Context, request admission.Request) admission.Response {
	marker, old := &appsv1alpha1.PodProbeMarker{}, (*appsv1alpha1.PodProbeMarker)(nil)
	if _, err := decode(request.Object.Raw, marker); err != nil {
		return undecodable(&request, err)
	}
	var before []metav1.StatusCause
	if request.Operation == admissionv1.Update {
		old = &appsv1alpha1.PodProbeMarker{}
		if _, err := decode(request.OldObject.Raw, old); err != nil {
			old = nil // what is stored cannot be read, so all is new
		} else if equality.Semantic.DeepEqual(marker.Spec, old.Spec) {
			return admission.Allowed("") // metadata only, such as the last finalizer
		} else {
			before = causesOf(podprobemarker.Validate(old, old))
		}
	}
	causes := fresh(causesOf(podprobemarker.Validate(marker, old)), before)
	if len(causes) == 0 {
		return admission.Allowed("")
	}
	response := invalid(&request, causes)
	if response.Result.Code == http.StatusUnprocessableEntity {
		response.Result.Code, response.Result.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}
	return response
}
