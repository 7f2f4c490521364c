package controller

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

	"github.com/afloat-project/afloat/internal/framework"
)

// containersJudge is an API server that finds these faults in templates.
type containersJudge struct {
	framework.TemplateValidator
	causes   []metav1.StatusCause
	err      error
	template framework.Document
}

// Judge implements TemplateValidator.
func (j *containersJudge) Judge(_ context.Context, _ string, template framework.Document, _ []string) ([]metav1.StatusCause, error) {
	j.template = template
	return j.causes, j.err
}

// EJ-031: the webhooks answer with 400 and all faults, those that the API server finds with them
// (EJ-025 (part)); defaults are added (EJ-026 (part)); metadata of what is stored wrong may change.
func TestEphemeralJobs(t *testing.T) {
	judge := &containersJudge{}
	w := &ephemeralWebhook{framework.Templates{Validator: framework.Unprivileged(judge)}}
	ask := func(handle admission.HandlerFunc, operation admissionv1.Operation, object, old string) admission.Response {
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation, Name: "dump", Namespace: "shop",
			Kind: metav1.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "EphemeralJob"}, Object: runtime.RawExtension{Raw: []byte(object)}}}
		if old != "" {
			request.OldObject.Raw = []byte(old)
		}
		return handle(t.Context(), request)
	}
	const good = `{"metadata":{"name":"dump"},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"ephemeralContainers":[{"name":"a","image":"a:1","targetContainerName":"x"}]}}}`
	if r := ask(w.mutate, admissionv1.Create, good, ""); !r.Allowed {
		t.Errorf("defaults for a good job: %+v", r.Result)
	} else if len(r.Patches) != 4 {
		t.Errorf("defaults for a good job: got %v, want 4", r.Patches)
	}
	if r := ask(w.validate, admissionv1.Create, good, ""); !r.Allowed {
		t.Errorf("a good job: %+v", r.Result)
	} else if len(r.Warnings) > 0 {
		t.Errorf("a good job: got warnings %q, want none", r.Warnings)
	}
	text, err := json.Marshal(judge.template)
	if err != nil {
		t.Errorf("the template that was judged: %v", err)
	}
	if strings.Contains(string(text), "targetContainerName") {
		t.Errorf("the template that was judged has a target container: %s", text)
	}
	if !strings.Contains(string(text), `"image":"a:1"`) {
		t.Errorf("the template that was judged has no image a:1: %s", text)
	}
	judge.causes = []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "spec.template.spec.containers[0].env[0].name", Message: "bad"},
		{Type: "FieldValueRequired", Field: "spec.template.spec.containers[0].name", Message: "told already"}, {Field: "spec.template.spec.other", Message: "not ours"}}
	bad := `{"metadata":{"name":"dump"},"spec":{"selector":{},"template":{"ephemeralContainers":[{"image":"a:1","ports":[{"containerPort":1}],"securityContext":{"privileged":true}}]}}}`
	r := ask(w.validate, admissionv1.Create, bad, "")
	if r.Allowed {
		t.Error("a bad job is admitted")
	}
	if r.Result.Code != http.StatusBadRequest {
		t.Errorf("a bad job: got code %d, want 400", r.Result.Code)
	}
	if r.Result.Reason != metav1.StatusReasonBadRequest {
		t.Errorf("a bad job: got reason %s, want BadRequest", r.Result.Reason)
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
		t.Errorf("the last finalizer of a bad job: %+v", r.Result)
	}
	if r := ask(w.validate, admissionv1.Update, strings.Replace(good, "a:1", "a:2", 1), good); r.Allowed {
		t.Error("another template is admitted")
	} else if r.Result.Code != http.StatusBadRequest {
		t.Errorf("another template: refused with %+v, want code 400", r.Result)
	}
	ended := strings.Replace(good, `"spec":{`, `"status":{"completionTime":"2026-01-01T00:00:00Z"},"spec":{`, 1)
	another := strings.Replace(ended, `"spec":{`, `"spec":{"parallelism":2,`, 1)
	if r := ask(w.validate, admissionv1.Update, another, ended); !r.Allowed {
		t.Errorf("another parallelism of a job that ended: %+v", r.Result)
	} else if len(r.Warnings) != 1 {
		t.Errorf("another parallelism of a job that ended: got warnings %q, want one", r.Warnings)
	}
	judge.causes, judge.err = nil, errors.New("no answer")
	if r := ask(w.validate, admissionv1.Create, good, ""); !r.Allowed {
		t.Errorf("without the answer of the API server: %+v", r.Result)
	} else if len(r.Warnings) != 1 {
		t.Errorf("without the answer of the API server: got warnings %q, want one", r.Warnings)
	}
	judge.causes, judge.err = []metav1.StatusCause{{Type: "FieldValueInvalid", Field: "spec.template", Message: "it does not fit"}}, nil
	if r := ask(w.validate, admissionv1.Create, good, ""); r.Allowed {
		t.Error("a template that does not fit is admitted")
	} else if !strings.Contains(r.Result.Message, "spec.template.ephemeralContainers: it does not fit") {
		t.Errorf("a template that does not fit: refused with %q, want the field of the job in it", r.Result.Message)
	}
	for _, handle := range []admission.HandlerFunc{w.mutate, w.validate} {
		if r := ask(handle, admissionv1.Create, `[]`, ""); r.Allowed {
			t.Errorf("a list instead of a job is admitted: %+v", r)
		}
	}
	if r := ask(w.validate, admissionv1.Create, `{"spec":{"replicas":"x"}}`, ""); r.Allowed {
		t.Errorf("wrong types are admitted: %+v", r)
	}
}
