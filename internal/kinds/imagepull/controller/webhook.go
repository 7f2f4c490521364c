package controller

import (
	"context"
	"net/http"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
)

// NodeImages returns the webhooks of the kind (IMG-020 to IMG-029).
func NodeImages(*framework.Environment) framework.Webhooks { return nodeImages(time.Now) }

func nodeImages(now func() time.Time) framework.Webhooks {
	return framework.Webhooks{
		Mutate: framework.DefaultBy(func(object framework.Document, _ bool) []jsonpatch.Operation {
			return imagepull.DefaultNodeImage(object, now())
		}),
		Validate: validateNodeImage,
	}
}

// ImagePullJobs returns the webhooks of the kind (IMG-030 to IMG-042).
func ImagePullJobs(*framework.Environment) framework.Webhooks {
	return framework.Webhooks{
		Mutate: framework.DefaultBy(func(object framework.Document, create bool) []jsonpatch.Operation {
			return imagepull.DefaultJob(object, false, create)
		}),
		Validate: validateJob,
	}
}

// ImageListPullJobs returns the webhooks of the kind (IMG-045, IMG-046).
func ImageListPullJobs(*framework.Environment) framework.Webhooks {
	return framework.Webhooks{
		Mutate: framework.DefaultBy(func(object framework.Document, _ bool) []jsonpatch.Operation {
			return imagepull.DefaultJob(object, true, false)
		}),
		Validate: validateList,
	}
}

func validateNodeImage(_ context.Context, request admission.Request) admission.Response {
	node, before, err := framework.Compare(&request, (*appsv1alpha1.NodeImage).ToV1beta1)
	switch {
	case err != nil:
		return framework.Undecodable(&request, err)
	case node.DeletionTimestamp != nil:
		return admission.Allowed("")
	}
	return judged(imagepull.CheckNodeImage(node, before))
}

func validateJob(_ context.Context, request admission.Request) admission.Response {
	job, old, err := framework.CompareOne[appsv1beta1.ImagePullJob](&request)
	switch {
	case err != nil:
		return framework.Undecodable(&request, err)
	case old != nil && equality.Semantic.DeepEqual(job.Spec, old.Spec):
		return admission.Allowed("") // metadata only, such as the last finalizer
	}

	response := judged(imagepull.CheckJob(job, old))
	if old != nil && old.Status.CompletionTime != nil {
		response = response.WithWarnings(
			"the job has completed: changes of its spec have no effect, create another job",
		)
	}

	return response
}

func validateList(_ context.Context, request admission.Request) admission.Response {
	list, old, err := framework.CompareOne[appsv1beta1.ImageListPullJob](&request)
	switch {
	case err != nil:
		return framework.Undecodable(&request, err)
	case old != nil && equality.Semantic.DeepEqual(list.Spec, old.Spec):
		return admission.Allowed("")
	}
	return judged(imagepull.CheckList(list, old))
}

func judged(err error) admission.Response {
	if err != nil {
		return framework.Refuse(http.StatusBadRequest, err.Error())
	}
	return admission.Allowed("")
}
