package framework

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

// Templates defaults and validates the pod templates of workloads of any kind.
type Templates struct {
	Validator TemplateValidator
	// Complete adds the defaults of the API server; it is set if the gate TemplateNoDefaults is off.
	Complete bool
	// HostPorts gives the containers of pods in the network of their node host ports.
	HostPorts bool
}

// NewTemplates returns the defaults and the validation of an environment.
func NewTemplates(e *Environment) Templates {
	return Templates{
		Validator: e.Validator,
		Complete:  !e.Gates.Enabled(features.TemplateNoDefaults),
		HostPorts: e.Gates.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates),
	}
}

// readWritten decodes an object in its version.
func readWritten[Alpha, Beta, Written any](
	version string, raw []byte, alpha func(*Alpha) Written, beta func(*Beta) Written,
) (w Written, err error) {
	switch version {
	case appsv1alpha1.GroupVersion.Version:
		object := new(Alpha)
		if _, err := Decode(raw, object); err != nil {
			return w, err
		}
		return alpha(object), nil
	case appsv1beta1.GroupVersion.Version:
		object := new(Beta)
		if _, err := Decode(raw, object); err != nil {
			return w, err
		}
		return beta(object), nil
	}
	return w, fmt.Errorf("version %q of %T is not known", version, new(Beta))
}

// ValidateWorkload validates a workload in the version in which it was written: by the rules of its kind, and
// its pod template by those of the API server. If warn is not nil, it returns warnings about an admitted
// workload.
func ValidateWorkload[Alpha, Beta, Written any](
	ctx context.Context, t Templates, request *admission.Request, alpha func(*Alpha) *Written,
	beta func(*Beta) *Written, judge func(updated, old *Written) field.ErrorList,
	warn func(updated, old *Written) []string,
) admission.Response {
	updatedDoc, oldDoc, err := Documents(request)
	if err != nil {
		return Undecodable(request, err)
	}
	if oldDoc != nil && SameJSON(updatedDoc["spec"], oldDoc["spec"]) &&
		v1beta1Fields(updatedDoc) == v1beta1Fields(oldDoc) {
		return admission.Allowed("") // metadata only, such as the last finalizer
	}
	version := WrittenVersion(updatedDoc, request)
	updated, err := readWritten(version, request.Object.Raw, alpha, beta)
	if err != nil {
		return Undecodable(request, err)
	}
	var old *Written
	if oldDoc != nil {
		if old, err = readWritten(version, request.OldObject.Raw, alpha, beta); err != nil {
			old = nil // the stored object cannot be read, so everything counts as new
		}
	}
	causes := Causes(judge(updated, old))
	more, warnings := t.ValidateTemplate(ctx, request.Namespace, updatedDoc, oldDoc)
	if causes = append(causes, more...); len(causes) > 0 {
		return Invalid(request, causes).WithWarnings(warnings...)
	}
	if warn != nil {
		warnings = append(warnings, warn(updated, old)...)
	}
	return admission.Allowed("").WithWarnings(warnings...)
}

// Defaulting returns how to default the templates of a workload: on create, and when the pod template
// changes.
func (t Templates) Defaulting(
	ctx context.Context, namespace string, updated, old Document,
) podtemplate.Request {
	request := podtemplate.Request{HostPorts: t.HostPorts}
	if t.Complete && (old == nil || !podtemplate.SameTemplate(updated, old)) {
		request.Complete = func(template Document) (Document, error) {
			return t.Validator.Complete(ctx, namespace, template, ClaimNames(updated))
		}
	}
	return request
}

// Defaulted returns the response with the patch of the defaults. err is the error of defaulting the pod
// template.
func Defaulted(operations []jsonpatch.Operation, err error, old Document) admission.Response {
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

// ValidateTemplate has the API server validate a new or changed pod template. Any answer other than "invalid"
// admits the object; problems then show when pods are created.
func (t Templates) ValidateTemplate(
	ctx context.Context, namespace string, updated, old Document,
) ([]metav1.StatusCause, []string) {
	if old != nil && podtemplate.SameTemplate(updated, old) &&
		SameJSON(ClaimNames(updated), ClaimNames(old)) {
		return nil, nil
	}
	return IntroducedErrors("spec.template", updated, old, old != nil,
		func(object Document) ([]metav1.StatusCause, error) {
			return t.ValidateOne(ctx, namespace, object)
		})
}

// ValidateOne has the API server validate the pod template of a workload, if it has one.
func (t Templates) ValidateOne(
	ctx context.Context, namespace string, object Document,
) ([]metav1.StatusCause, error) {
	spec, _ := object["spec"].(Document)
	template, ok := spec["template"].(Document)
	if !ok {
		return nil, nil // validation reports the error
	}
	return t.Validator.Judge(ctx, namespace, template, ClaimNames(object))
}

// Unprivileged returns a validator that also rejects privileged containers, for the flag
// --allow-privileged=false. It validates everything that becomes part of a pod: templates, sidecars, ephemeral
// containers, and templates with patches of subsets applied.
func Unprivileged(validator TemplateValidator) TemplateValidator { return unprivileged{validator} }

type unprivileged struct{ TemplateValidator }

// Judge implements TemplateValidator.
func (u unprivileged) Judge(
	ctx context.Context, namespace string, template Document, claims []string,
) ([]metav1.StatusCause, error) {
	causes, err := u.TemplateValidator.Judge(ctx, namespace, template, claims)
	if found := privileged(template); len(found) > 0 {
		return append(causes, found...), nil // whatever the API server answers
	}
	return causes, err
}

// privileged returns an error for each privileged container of a pod template.
func privileged(template Document) (causes []metav1.StatusCause) {
	spec, _ := template["spec"].(Document)
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := spec[list].([]any)
		for i, item := range containers {
			container, _ := item.(Document)
			if context, _ := container["securityContext"].(Document); context["privileged"] == true {
				path := field.NewPath("spec", "template", "spec", list).Index(i).
					Child("securityContext", "privileged")
				causes = append(causes, Causes(field.ErrorList{
					field.Forbidden(path, "privileged containers are not allowed here"),
				})...)
			}
		}
	}

	return causes
}

// ClaimNames returns the names of the claim templates, "" for one without a name.
func ClaimNames(object Document) []string {
	spec, _ := object["spec"].(Document)
	claims, _ := spec["volumeClaimTemplates"].([]any)
	names := []string{}
	for _, item := range claims {
		claim, _ := item.(Document)
		metadata, _ := claim["metadata"].(Document)
		name, _ := metadata["name"].(string)
		names = append(names, name)
	}
	return names
}
