package admission

import (
	"context"
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podtemplate"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// templates completes and judges the pod templates of workloads, of any kind.
type templates struct {
	judge TemplateValidator
	// templateDefaults is gate TemplateNoDefaults turned off.
	templateDefaults bool
	hostPorts        bool
}

func templatesOf(e *Environment) templates {
	return templates{judge: e.judge,
		templateDefaults: !e.Gates.Enabled(features.TemplateNoDefaults),
		hostPorts:        e.Gates.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates)}
}

// readWritten decodes an object in its version.
func readWritten[Alpha, Beta, Written any](version string, raw []byte, alpha func(*Alpha) Written,
	beta func(*Beta) Written) (w Written, err error) {
	switch version {
	case appsv1alpha1.GroupVersion.Version:
		object := new(Alpha)
		if _, err := decode(raw, object); err != nil {
			return w, err
		}
		return alpha(object), nil
	case appsv1beta1.GroupVersion.Version:
		object := new(Beta)
		if _, err := decode(raw, object); err != nil {
			return w, err
		}
		return beta(object), nil
	}
	return w, fmt.Errorf("version %q of %T is not known", version, new(Beta))
}

// validateWorkload judges a workload in the version in which it was written: by the rules of its kind, and
// its pod template by the API server's. warn, unless it is nil, is asked about what is admitted.
func validateWorkload[Alpha, Beta, Written any](ctx context.Context, t templates, request *admission.Request,
	alpha func(*Alpha) *Written, beta func(*Beta) *Written, judge func(updated, old *Written) field.ErrorList,
	warn func(updated, old *Written) []string) admission.Response {
	updatedDoc, oldDoc, err := documents(request)
	if err != nil {
		return undecodable(request, err)
	}
	if oldDoc != nil && sameJSON(updatedDoc["spec"], oldDoc["spec"]) &&
		v1beta1Fields(updatedDoc) == v1beta1Fields(oldDoc) {
		return admission.Allowed("") // metadata only, such as the last finalizer
	}
	version := versionOf(updatedDoc, request)
	updated, err := readWritten(version, request.Object.Raw, alpha, beta)
	if err != nil {
		return undecodable(request, err)
	}
	var old *Written
	if oldDoc != nil {
		if old, err = readWritten(version, request.OldObject.Raw, alpha, beta); err != nil {
			old = nil // what is stored cannot be read, so all is new
		}
	}
	causes := causesOf(judge(updated, old))
	more, warnings := t.judgeTemplate(ctx, request.Namespace, updatedDoc, oldDoc)
	if causes = append(causes, more...); len(causes) > 0 {
		return invalid(request, causes).WithWarnings(warnings...)
	}
	if warn != nil {
		warnings = append(warnings, warn(updated, old)...)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// completing says how the templates of a workload are completed: on create, and when the pod template
// changes.
func (t templates) completing(
	ctx context.Context, namespace string, updated, old document,
) podtemplate.Request {
	request := podtemplate.Request{HostPorts: t.hostPorts}
	if t.templateDefaults && (old == nil || !podtemplate.SameTemplate(updated, old)) {
		request.Complete = func(template document) (document, error) {
			return t.judge.Complete(ctx, namespace, template, claimNames(updated))
		}
	}
	return request
}

// completed answers with the patch that completes a workload. The error is that of completing its pod
// template.
func completed(operations []jsonpatch.Operation, err error, old document) admission.Response {
	response := admission.Patched("", operations...)
	if err != nil && !refusal(err) { // validation reports a refusal to the user
		how := "is stored without the API server's defaults"
		if old != nil {
			how = "keeps the defaults that are stored, and gets no others"
		}
		response = response.WithWarnings(fmt.Sprintf("spec.template %s: %v", how, err))
	}
	return response
}

// judgeTemplate has the API server judge a new or changed pod template. Any answer other than "invalid" lets
// the object through; problems will then show when pods are created.
func (t templates) judgeTemplate(
	ctx context.Context, namespace string, updated, old document,
) ([]metav1.StatusCause, []string) {
	if old != nil && podtemplate.SameTemplate(updated, old) &&
		sameJSON(claimNames(updated), claimNames(old)) {
		return nil, nil
	}
	return introducedErrors("spec.template", updated, old, old != nil,
		func(object document) ([]metav1.StatusCause, error) {
			return t.judgeOne(ctx, namespace, object)
		})
}

func (t templates) judgeOne(
	ctx context.Context, namespace string, object document,
) ([]metav1.StatusCause, error) {
	spec, _ := object["spec"].(document)
	template, ok := spec["template"].(document)
	if !ok {
		return nil, nil // validation reports the error
	}
	return t.judge.Judge(ctx, namespace, template, claimNames(object))
}

// unprivileged is a judge that refuses privileged containers, for flag --allow-privileged=false. All that
// becomes part of a pod is judged by it: templates, sidecars, ephemeral containers, and what patches of
// subsets make of templates.
type unprivileged struct{ TemplateValidator }

// Judge implements TemplateValidator.
func (u unprivileged) Judge(
	ctx context.Context, namespace string, template document, claims []string,
) ([]metav1.StatusCause, error) {
	causes, err := u.TemplateValidator.Judge(ctx, namespace, template, claims)
	if found := privileged(template); len(found) > 0 {
		return append(causes, found...), nil // no matter what the API server answers
	}
	return causes, err
}

// privileged are the privileged containers of a pod template.
func privileged(template document) (causes []metav1.StatusCause) {
	spec, _ := template["spec"].(document)
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for i, item := range containers {
			container, _ := item.(document)
			if context, _ := container["securityContext"].(document); context["privileged"] == true {
				path := field.NewPath("spec", "template", "spec",
					list).Index(i).Child("securityContext", "privileged")
				causes = append(causes, causesOf(field.ErrorList{
					field.Forbidden(path, "privileged containers are not allowed here"),
				})...)
			}
		}
	}
	return causes
}

// claimNames are the names of the claim templates, empty where there is none.
func claimNames(object document) []string {
	spec, _ := object["spec"].(document)
	claims, _ := spec["volumeClaimTemplates"].([]any)
	names := []string{}
	for _, item := range claims {
		claim, _ := item.(document)
		metadata, _ := claim["metadata"].(document)
		name, _ := metadata["name"].(string)
		names = append(names, name)
	}
	return names
}
