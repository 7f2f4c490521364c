package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// cloneSetWebhooks admits CloneSets of both versions (CS-010 to CS-035).
type cloneSetWebhooks struct {
	// forbidPrivileged is flag --allow-privileged=false.
	forbidPrivileged bool
	judge            TemplateJudge
	// pods reads pods; a cache is good enough for warnings.
	pods client.Reader
	// templateDefaults is gate TemplateNoDefaults turned off (CS-014).
	templateDefaults bool
	hostPorts        bool
	// inPlace is what may change under InPlaceOnly (CS-033).
	inPlace inplace.Options
}

// CloneSets makes the webhooks of the kind.
func CloneSets(e *Environment) Webhooks {
	w := &cloneSetWebhooks{forbidPrivileged: e.ForbidPrivileged, judge: e.judge, pods: e.cached,
		templateDefaults: !e.Gates.Enabled(features.TemplateNoDefaults),
		hostPorts:        e.Gates.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates), inPlace: e.InPlace}
	webhooks := Webhooks{Mutate: w.mutate, Validate: w.validate}
	if e.Gates.Enabled(features.ResourcesDeletionProtection) {
		webhooks.Delete = protect
	}
	return webhooks
}

// mutate fills in what was left out (CS-010 to CS-015).
func (w *cloneSetWebhooks) mutate(ctx context.Context, request admission.Request) admission.Response {
	updated, old, err := documents(&request)
	if err != nil {
		return undecodable(&request, err)
	}
	defaults := cloneset.DefaultRequest{Version: versionOf(updated, &request), New: updated, Old: old, HostPorts: w.hostPorts}
	if w.templateDefaults && (old == nil || !cloneset.SameTemplate(updated, old)) {
		defaults.Template = func(template document) (document, error) { return w.judge.Complete(ctx, request.Namespace, template) }
	}
	operations, err := cloneset.Default(defaults)
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

// validate judges CloneSets (CS-020 to CS-035).
func (w *cloneSetWebhooks) validate(ctx context.Context, request admission.Request) admission.Response {
	updatedDoc, oldDoc, err := documents(&request)
	if err != nil {
		return undecodable(&request, err)
	}
	if oldDoc != nil && sameJSON(updatedDoc["spec"], oldDoc["spec"]) {
		return admission.Allowed("") // metadata only, such as the last finalizer
	}
	version := versionOf(updatedDoc, &request)
	updated, err := written(version, request.Object.Raw)
	if err != nil {
		return undecodable(&request, err)
	}
	var old *cloneset.Written
	if oldDoc != nil {
		if old, err = written(version, request.OldObject.Raw); err != nil {
			old = nil // what is stored cannot be read, so all is new
		}
	}
	causes := causesOf(cloneset.Validate(updated, old, w.inPlace))
	more, warnings := w.judgeTemplate(ctx, request.Namespace, updatedDoc, oldDoc)
	if causes = append(causes, more...); len(causes) > 0 {
		return invalid(&request, causes).WithWarnings(warnings...)
	}
	return admission.Allowed("").WithWarnings(append(warnings, w.podsToDelete(ctx, request.Namespace, updated, old)...)...)
}

// protect refuses the deletion of a protected CloneSet (CS-034, DP-010, DP-018). An unreadable object counts as not protected.
func protect(_ context.Context, request admission.Request) admission.Response {
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Replicas int64 `json:"replicas"`
		} `json:"spec"`
	}
	if json.Unmarshal(request.OldObject.Raw, &object) != nil || object.Metadata.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	value, replicas := object.Metadata.Labels[pub.DeletionProtection], object.Spec.Replicas
	protected := fmt.Sprintf("CloneSet %s/%s is protected by label %s=%s", request.Namespace, request.Name, pub.DeletionProtection, value)
	switch {
	case value == "Always":
		return admission.Denied(protected + ": remove the label before deleting it")
	case value == "Cascading" && replicas > 0:
		return admission.Denied(fmt.Sprintf("%s and replicas %d>0: scale to 0 or remove the label before deleting it", protected, replicas))
	}
	return admission.Allowed("")
}

// judgeTemplate has the API server judge a new or changed pod template (CS-022). Any answer other than "invalid" lets the object through;
// problems will then show when pods are created.
func (w *cloneSetWebhooks) judgeTemplate(ctx context.Context, namespace string, updated, old document) ([]metav1.StatusCause, []string) {
	if old != nil && cloneset.SameTemplate(updated, old) && sameJSON(claimNames(updated), claimNames(old)) {
		return nil, nil
	}
	return newFaults("spec.template", updated, old, old != nil, func(object document) ([]metav1.StatusCause, error) {
		return w.judgeOne(ctx, namespace, object)
	})
}

func (w *cloneSetWebhooks) judgeOne(ctx context.Context, namespace string, object document) ([]metav1.StatusCause, error) {
	spec, _ := object["spec"].(document)
	template, ok := spec["template"].(document)
	if !ok {
		return nil, nil // validation reports the error
	}
	causes, err := w.judge.Judge(ctx, namespace, template, claimNames(object))
	if found := privileged(template); w.forbidPrivileged && len(found) > 0 {
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
				path := field.NewPath("spec", "template", "spec", list).Index(i).Child("securityContext", "privileged")
				causes = append(causes, causesOf(field.ErrorList{field.Forbidden(path, "privileged containers are not allowed here")})...)
			}
		}
	}
	return causes
}

func (w *cloneSetWebhooks) podsToDelete(ctx context.Context, namespace string, updated, old *cloneset.Written) []string {
	var before *appsv1beta1.CloneSet
	if old != nil {
		before = old.CloneSet()
	}
	unknown := false
	warnings := cloneset.PodsToDeleteWarnings(updated.CloneSet(), before, func(name string) *corev1.Pod {
		pod := &corev1.Pod{}
		if err := w.pods.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod); err != nil {
			unknown = unknown || !apierrors.IsNotFound(err)
			return nil
		}
		return pod
	})
	if unknown {
		return nil // no warning rather than a wrong one
	}
	return warnings
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

// written decodes an object in its version.
func written(version string, raw []byte) (*cloneset.Written, error) {
	switch version {
	case appsv1alpha1.GroupVersion.Version:
		set := &appsv1alpha1.CloneSet{}
		if _, err := decode(raw, set); err != nil {
			return nil, err
		}
		return cloneset.WrittenInV1alpha1(set), nil
	case appsv1beta1.GroupVersion.Version:
		set := &appsv1beta1.CloneSet{}
		if _, err := decode(raw, set); err != nil {
			return nil, err
		}
		return cloneset.WrittenInV1beta1(set), nil
	}
	return nil, fmt.Errorf("version %q of CloneSet is not known", version)
}

// documents decodes the objects of a request; old is nil on create.
func documents(request *admission.Request) (updated, old document, err error) {
	if updated, err = decodeDocument(request.Object.Raw); err != nil {
		return nil, nil, fmt.Errorf("reading the object: %w", err)
	}
	if request.Operation == admissionv1.Update {
		if old, err = decodeDocument(request.OldObject.Raw); err != nil {
			return nil, nil, fmt.Errorf("reading the stored object: %w", err)
		}
		if old == nil {
			return nil, nil, errors.New("reading the stored object: there is none")
		}
	}
	return updated, old, nil
}

// versionOf is the version in which the object is written, whatever was requested (OPS-066).
func versionOf(object document, request *admission.Request) string {
	if text, _ := object["apiVersion"].(string); text == alpha || text == beta {
		return path.Base(text)
	}
	return request.Kind.Version
}

// sameSpec tells whether an update leaves the spec as it is.
func sameSpec(request *admission.Request) bool {
	updated, err := decodeDocument(request.Object.Raw)
	if err != nil {
		return false
	}
	old, err := decodeDocument(request.OldObject.Raw)
	return err == nil && sameJSON(updated["spec"], old["spec"])
}

func sameJSON(a, b any) bool {
	left, err := json.Marshal(a)
	if err != nil {
		return false
	}
	right, err := json.Marshal(b)
	return err == nil && string(left) == string(right)
}

// MovedInCloneSets returns the path in one version of a CloneSet for a path in the other. Fields below updateStrategy.rollingUpdate in
// v1beta1 are directly below updateStrategy in v1alpha1 (CS-253). In turn, fields directly below updateStrategy in v1beta1 go below
// rollingUpdate in v1alpha1, so that every field returns to its place.
func MovedInCloneSets(path []string) []string {
	const strategy, rolling = "updateStrategy", "rollingUpdate"
	switch {
	case len(path) < 3 || path[0] != "spec" || path[1] != strategy:
		return path
	case len(path) > 3 && path[2] == rolling:
		return append([]string{"spec", strategy}, path[3:]...)
	}
	return append([]string{"spec", strategy, rolling}, path[2:]...)
}
