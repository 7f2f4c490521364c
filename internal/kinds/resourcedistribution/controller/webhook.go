package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
)

// distributionWebhook admits ResourceDistributions of both versions, each in its v1beta1 form.
type distributionWebhook struct {
	// namespace is where the API server validates resources in dry runs, which writer sends.
	namespace string
	writer    client.Writer
	// own are the namespaces of the manager.
	own []string
}

// ResourceDistributions returns the webhook of the kind.
func ResourceDistributions(e *framework.Environment) framework.Webhooks {
	w := &distributionWebhook{
		namespace: e.Namespace,
		own:       []string{e.Namespace, e.DaemonNamespace},
		writer:    e.Writer,
	}
	return framework.Webhooks{Validate: w.validate}
}

func (w *distributionWebhook) validate(ctx context.Context, request admission.Request) admission.Response {
	if framework.BeingDeleted(&request) {
		return admission.Allowed("")
	}

	distribution, old, err := framework.Compare(&request, (*appsv1alpha1.ResourceDistribution).ToV1beta1)
	if err != nil {
		response := framework.Undecodable(&request, err)
		response.Result.Code, response.Result.Reason = http.StatusBadRequest, metav1.StatusReasonBadRequest
		return response
	}

	if request.Operation == admissionv1.Update && framework.SameSpec(&request) {
		return admission.Allowed("") // metadata only
	}

	causes := framework.Causes(resourcedistribution.Validate(distribution, old, w.own...))
	if old != nil && len(causes) > 0 {
		causes = framework.NewCauses(causes, framework.Causes(resourcedistribution.Validate(old, nil, w.own...)))
	}

	nameInAlpha(&request, causes)
	warnings := resourcedistribution.Warnings(distribution)
	if len(causes) > 0 {
		return framework.Invalid(&request, causes).WithWarnings(warnings...)
	}

	if old == nil || string(old.Spec.Resource.Raw) != string(distribution.Spec.Resource.Raw) {
		if refusal := w.judge(ctx, &request, distribution); refusal != nil {
			return refusal.WithWarnings(warnings...)
		}
	}

	return admission.Allowed("").WithWarnings(warnings...)
}

// nameInAlpha renames the selector in causes to its v1alpha1 name, if the object is written in that version.
func nameInAlpha(request *admission.Request, causes []metav1.StatusCause) {
	document, err := framework.DecodeDocument(request.Object.Raw)
	if err != nil || framework.WrittenVersion(document, request) != framework.V1alpha1 {
		return
	}
	for i := range causes {
		if rest, is := strings.CutPrefix(causes[i].Field, "spec.targets.namespaceSelector"); is {
			causes[i].Field = "spec.targets.namespaceLabelSelector" + rest
		}
	}
}

// uidInDryRun stands for the UID of an object that is being created, because the copy in the dry run must have an
// owner like all copies.
const uidInDryRun = "00000000-0000-0000-0000-000000000000"

// judge asks the API server whether it would accept a copy, by a dry run in the namespace of the manager. It
// returns nil if it would.
func (w *distributionWebhook) judge(
	ctx context.Context, request *admission.Request, distribution *appsv1beta1.ResourceDistribution,
) *admission.Response {
	resource, err := resourcedistribution.Read(distribution)
	if err != nil {
		return nil // validation did not reject it, so the stored object has the same fault
	}

	distribution = distribution.DeepCopy()
	if distribution.UID == "" {
		distribution.UID = uidInDryRun
	}

	err = w.writer.Create(ctx,
		&unstructured.Unstructured{
			Object: resource.Document(w.namespace, resourcedistribution.Owner(distribution)),
		}, client.DryRunAll)
	var response admission.Response
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		response = framework.Invalid(request, []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec.resource", Message: err.Error()},
		})
	case apierrors.IsForbidden(err):
		response = framework.Refuse(http.StatusForbidden, "spec.resource may not be created: "+err.Error())
	default:
		response = framework.Refuse(http.StatusInternalServerError,
			fmt.Sprintf("spec.resource could not be judged: %v", err))
	}

	return &response
}

// RenamedInResourceDistributions returns the path in one version of a ResourceDistribution for a path in the
// other (RD-012). Unknown fields with the other name swap places with them.
func RenamedInResourceDistributions(path []string) []string {
	renamed := func(at int, names [2]string) []string {
		for i, name := range names {
			if len(path) > at && path[at] == name {
				return slices.Concat(path[:at], []string{names[1-i]}, path[at+1:])
			}
		}
		return path
	}
	switch {
	case len(path) > 2 && path[0] == "spec" && path[1] == "targets":
		return renamed(2, [2]string{"namespaceLabelSelector", "namespaceSelector"})
	case len(path) > 3 && path[0] == "status" && path[1] == "conditions":
		return renamed(3, [2]string{"failedNamespace", "failedNamespaces"})
	}

	return path
}
