package controller

import (
	"context"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
)

// PodProbeMarkers returns the webhooks of the kind (PPM-020 to PPM-031).
func PodProbeMarkers(*framework.Environment) framework.Webhooks {
	return framework.Webhooks{
		Mutate: framework.DefaultBy(func(object framework.Document, _ bool) []jsonpatch.Operation {
			return podprobemarker.Default(object)
		}),
		Validate: validateMarker,
	}
}

// NodePodProbes returns no webhooks: anyone who may write NodePodProbes may run commands in every pod anyway,
// and the node daemon rejects probes that must not run.
func NodePodProbes(*framework.Environment) framework.Webhooks { return framework.Webhooks{} }

func validateMarker(_ context.Context, request admission.Request) admission.Response {
	marker, old, err := framework.CompareOne[appsv1alpha1.PodProbeMarker](&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}

	var before []metav1.StatusCause
	if old != nil {
		if equality.Semantic.DeepEqual(marker.Spec, old.Spec) {
			return admission.Allowed("") // metadata only, such as the last finalizer
		}
		before = framework.Causes(podprobemarker.Validate(old, old))
	}

	causes := framework.NewCauses(framework.Causes(podprobemarker.Validate(marker, old)), before)
	if len(causes) == 0 {
		return admission.Allowed("")
	}

	response := framework.Invalid(&request, causes)
	if response.Result.Code == http.StatusUnprocessableEntity {
		response.Result.Code, response.Result.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
	}

	return response
}
