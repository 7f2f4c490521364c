package admission

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// containersJudge is an API server that finds these faults in templates.
type containersJudge struct {
	TemplateValidator
	causes   []metav1.StatusCause
	err      error
	template document
}

// Judge implements TemplateValidator.
func (j *containersJudge) Judge(_ context.Context, _ string, template document, _ []string) ([]metav1.StatusCause, error) {
	j.template = template
	return j.causes, j.err
}

// EJ-031: the webhooks answer with 400 and all faults, those that the API server finds with them
// (EJ-025 (part)); defaults are added (EJ-026 (part)); metadata of what is stored wrong may change.
func TestEphemeralJobs(t *testing.T) {
	judge := &containersJudge{}
	w := &ephemeralWebhook{templates{judge: unprivileged{judge}}}
	ask := func(handle admission.HandlerFunc, operation admissionv1.Operation, object, old string) admission.Response {
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation, Name: "dump", Namespace: "shop",
			Kind: metav1.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "EphemeralJob"}, Object: runtime.RawExtension{Raw: []byte(object)}}}
		if old != "" {
			request.OldObject.Raw = []byte(old)
		}
		return handle(t.Context(), request)
	}
	const good = `{"metadata":{"name":"dump"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"ephemeralContainers":[{"name":"a","image":"a:1","targetContainerName":"x"}]}}}`
	if r := ask(w.mutate, admissionv1.Create, good, ""); !r.Allowed || len(r.Patches) != 4 {
		t.Errorf("%+v", r)
	}
	if r := ask(w.validate, admissionv1.Create, good, ""); !r.Allowed || len(r.Warnings) > 0 {
		t.Errorf("%+v", r)
	}
	text, err := json.Marshal(judge.template)
	if err != nil || strings.Contains(string(text), "targetContainerName") || !strings.Contains(string(text), `"image":"a:1"`) {
		t.Errorf("%v %s", err, text)
	}
	judge.causes = []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "spec.template.spec.containers[0].env[0].name", Message: "bad"},
		{Type: "FieldValueRequired", Field: "spec.template.spec.containers[0].name", Message: "told already"}, {Field: "spec.template.spec.other", Message: "not ours"}}
	bad := `{"metadata":{"name":"dump"},"spec":{"selector":{},"template":{"ephemeralContainers":[{"image":"a:1","ports":[{"containerPort":1}],"securityContext":{"privileged":true}}]}}}`
	r := ask(w.validate, admissionv1.Create, bad, "")
	if r.Allowed || r.Result.Code != http.StatusBadRequest || r.Result.Reason != metav1.StatusReasonBadRequest {
		t.Errorf("%+v", r.Result)
	}
	for _, part := range []string{"spec.selector: Required", "ephemeralContainers[0].ports: Forbidden: cannot be set", "ephemeralContainers[0].name: Required",
		"ephemeralContainers[0].env[0].name: bad", "ephemeralContainers[0].securityContext.privileged: Forbidden"} {
		if !strings.Contains(r.Result.Message, part) {
			t.Errorf("%s lacks %s", r.Result.Message, part)
		}
	}
	for _, part := range []string{"told already", "not ours"} {
		if strings.Contains(r.Result.Message, part) {
			t.Errorf("%s has %s", r.Result.Message, part)
		}
	}
	if r := ask(w.validate, admissionv1.Update, strings.Replace(bad, `"name":"dump"`, `"name":"dump","finalizers":[]`, 1), bad); !r.Allowed {
		t.Errorf("%+v", r.Result)
	}
	if r := ask(w.validate, admissionv1.Update, strings.Replace(good, "a:1", "a:2", 1), good); r.Allowed || r.Result.Code != http.StatusBadRequest {
		t.Errorf("%+v", r.Result)
	}
	ended := strings.Replace(good, `"spec":{`, `"status":{"completionTime":"2026-01-01T00:00:00Z"},"spec":{`, 1)
	if r := ask(w.validate, admissionv1.Update, strings.Replace(ended, `"spec":{`, `"spec":{"parallelism":2,`, 1), ended); !r.Allowed || len(r.Warnings) != 1 {
		t.Errorf("%+v", r)
	}
	judge.causes, judge.err = nil, errors.New("no answer")
	if r := ask(w.validate, admissionv1.Create, good, ""); !r.Allowed || len(r.Warnings) != 1 {
		t.Errorf("%+v", r)
	}
	judge.causes, judge.err = []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "spec.template", Message: "it does not fit"}}, nil
	if r := ask(w.validate, admissionv1.Create, good, ""); r.Allowed || !strings.Contains(r.Result.Message, "spec.template.ephemeralContainers: it does not fit") {
		t.Errorf("%+v", r)
	}
	for _, handle := range []admission.HandlerFunc{w.mutate, w.validate} {
		if r := ask(handle, admissionv1.Create, `[]`, ""); r.Allowed {
			t.Errorf("%+v", r)
		}
	}
	if r := ask(w.validate, admissionv1.Create, `{"spec":{"replicas":"x"}}`, ""); r.Allowed {
		t.Errorf("%+v", r)
	}
}
