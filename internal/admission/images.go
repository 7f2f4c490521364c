package admission

import (
	"context"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/operation/imagepull"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// imageWebhooks admits NodeImages, ImagePullJobs and ImageListPullJobs of both versions (IMG-020 to IMG-046).
type imageWebhooks struct {
	// daemon and jobs are gates KruiseDaemon (IMG-020) and ImagePullJobGate (IMG-030).
	daemon, jobs bool
	now          func() time.Time
}

func newImageWebhooks(e *Environment) *imageWebhooks {
	return &imageWebhooks{daemon: e.Gates.Enabled(features.KruiseDaemon), jobs: e.Gates.Enabled(features.ImagePullJobGate), now: time.Now}
}

// NodeImages makes the webhooks of the kind.
func NodeImages(e *Environment) Webhooks { return newImageWebhooks(e).nodes() }

// ImagePullJobs makes the webhooks of the kind.
func ImagePullJobs(e *Environment) Webhooks { return newImageWebhooks(e).pullJobs() }

// ImageListPullJobs makes the webhooks of the kind.
func ImageListPullJobs(e *Environment) Webhooks { return newImageWebhooks(e).listJobs() }

func (w *imageWebhooks) nodes() Webhooks {
	return Webhooks{Mutate: w.gated(false, w.mutateNode), Validate: w.gated(false, w.validateNode)}
}

func (w *imageWebhooks) pullJobs() Webhooks {
	return Webhooks{Mutate: w.gated(true, w.mutateJob), Validate: w.gated(true, w.validateJob)}
}

func (w *imageWebhooks) listJobs() Webhooks {
	return Webhooks{Mutate: w.gated(true, w.mutateList), Validate: w.gated(true, w.validateList)}
}

// gated asks the handler about creations and updates, unless a gate is off.
func (w *imageWebhooks) gated(jobs bool, handle func(*admission.Request) admission.Response) admission.HandlerFunc {
	return func(_ context.Context, request admission.Request) admission.Response {
		switch {
		case request.Operation != admissionv1.Create && request.Operation != admissionv1.Update:
			return admission.Allowed("")
		case (!w.daemon || jobs && !w.jobs) && leaving(&request):
			return admission.Allowed("")
		case !w.daemon:
			return gateOff("KruiseDaemon")
		case jobs && !w.jobs:
			return gateOff("ImagePullJobGate")
		}
		return handle(&request)
	}
}

func (w *imageWebhooks) mutateNode(request *admission.Request) admission.Response {
	object, err := decodeDocument(request.Object.Raw)
	if err != nil {
		return undecodable(request, err)
	}
	return admission.Patched("", imagepull.DefaultNodeImage(object, w.now())...)
}

func (w *imageWebhooks) validateNode(request *admission.Request) admission.Response {
	object, err := decodeDocument(request.Object.Raw)
	if err != nil {
		return undecodable(request, err)
	}
	alpha := versionOf(object, request) == appsv1alpha1.GroupVersion.Version
	node, err := readNodeImage(request.Object.Raw, alpha)
	if err != nil {
		return undecodable(request, err)
	}
	if node.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	var before *appsv1beta1.NodeImage
	if request.Operation == admissionv1.Update {
		if before, err = readNodeImage(request.OldObject.Raw, alpha); err != nil {
			before = nil // what is stored cannot be read, so all is new
		}
	}
	return judged(imagepull.CheckNodeImage(node, before))
}

// readNodeImage reads a NodeImage in the form of v1alpha1 or v1beta1.
func readNodeImage(raw []byte, alpha bool) (*appsv1beta1.NodeImage, error) {
	if alpha {
		given := &appsv1alpha1.NodeImage{}
		if _, err := decode(raw, given); err != nil {
			return nil, err
		}
		return given.ToV1beta1(), nil
	}
	node := &appsv1beta1.NodeImage{}
	_, err := decode(raw, node)
	return node, err
}

func (w *imageWebhooks) mutateJob(request *admission.Request) admission.Response {
	object, err := decodeDocument(request.Object.Raw)
	if err != nil {
		return undecodable(request, err)
	}
	return admission.Patched("", imagepull.DefaultJob(object, false, request.Operation == admissionv1.Create)...)
}

func (w *imageWebhooks) mutateList(request *admission.Request) admission.Response {
	object, err := decodeDocument(request.Object.Raw)
	if err != nil {
		return undecodable(request, err)
	}
	return admission.Patched("", imagepull.DefaultJob(object, true, false)...)
}

// Both versions of the jobs have the same fields (IMG-010), so one type reads them (IMG-041).
func (w *imageWebhooks) validateJob(request *admission.Request) admission.Response {
	job, old := &appsv1beta1.ImagePullJob{}, (*appsv1beta1.ImagePullJob)(nil)
	if _, err := decode(request.Object.Raw, job); err != nil {
		return undecodable(request, err)
	}
	if request.Operation == admissionv1.Update {
		old = &appsv1beta1.ImagePullJob{}
		if _, err := decode(request.OldObject.Raw, old); err != nil {
			old = nil // what is stored cannot be read, so all is new
		} else if equality.Semantic.DeepEqual(job.Spec, old.Spec) {
			return admission.Allowed("") // metadata only, such as the last finalizer
		}
	}
	response := judged(imagepull.CheckJob(job, old))
	if old != nil && old.Status.CompletionTime != nil { // IMG-042, IMG-222
		response = response.WithWarnings("the job has completed: changes of its spec have no effect, create another job")
	}
	return response
}

func (w *imageWebhooks) validateList(request *admission.Request) admission.Response {
	list, old := &appsv1beta1.ImageListPullJob{}, (*appsv1beta1.ImageListPullJob)(nil)
	if _, err := decode(request.Object.Raw, list); err != nil {
		return undecodable(request, err)
	}
	if request.Operation == admissionv1.Update {
		old = &appsv1beta1.ImageListPullJob{}
		if _, err := decode(request.OldObject.Raw, old); err != nil {
			old = nil // what is stored cannot be read, so all is new
		} else if equality.Semantic.DeepEqual(list.Spec, old.Spec) {
			return admission.Allowed("")
		}
	}
	return judged(imagepull.CheckList(list, old))
}

func judged(err error) admission.Response {
	if err != nil {
		return refused(http.StatusBadRequest, err.Error())
	}
	return admission.Allowed("")
}
