package controller

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/registry/testdata/podcounter"
	"github.com/afloat-project/afloat/internal/registry/testdata/podcounter/v1alpha1"
)

func webhooks(*framework.Environment) framework.Webhooks {
	return framework.Webhooks{Validate: validate}
}

func validate(_ context.Context, request admission.Request) admission.Response {
	counter, _, err := framework.CompareOne[v1alpha1.PodCounter](&request)
	if err != nil {
		return framework.Undecodable(&request, err)
	}
	if causes := framework.Causes(podcounter.Validate(counter)); len(causes) > 0 {
		return framework.Invalid(&request, causes)
	}
	return admission.Allowed("")
}
