package admission

import (
	"context"
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/internal/framework"
)

// answering is an API server that answers dry runs with an error.
type answering struct{ err error }

func (a answering) Complete(context.Context, string, framework.Document, []string) (framework.Document, error) {
	return nil, a.err
}

func (a answering) Judge(context.Context, string, framework.Document, []string) ([]metav1.StatusCause, error) {
	return nil, a.err
}

// ADS-061 (part): a quota or a policy for PodTemplates had every daemon pod made anew, since the template
// counted as complete as it was. Only what the API server says about the template counts.
func TestAQuotaForPodTemplatesIsNoJudgement(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
			Details: &metav1.StatusDetails{Causes: causes}}}
	}
	invalid := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "template.spec.containers[0].image"}
	for name, test := range map[string]struct {
		err    error
		judged bool
	}{
		"a quota":           {apierrors.NewForbidden(corev1.Resource("podtemplates"), "x", errors.New("exceeded quota")), false},
		"a webhook":         {status(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "p" denied the request`), false},
		"a webhook's 422":   {status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, `admission webhook "p" denied`, invalid), false},
		"a policy":          {status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "denied", metav1.StatusCause{Message: "no"}), false},
		"no such namespace": {apierrors.NewNotFound(corev1.Resource("namespaces"), "shop"), false},
		"too many requests": {apierrors.NewTooManyRequests("later", 1), false},
		"no answer":         {errors.New("connection refused"), false},
		"an invalid image":  {status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "bad", invalid), true},
	} {
		const template = `{"spec":{"containers":[{"name":"a","image":"a:1"}]}}`
		completed, err := framework.CompleteTemplate(answering{test.err})(t.Context(), "shop", []byte(template))
		if judged := err == nil; judged != test.judged {
			t.Errorf("%s: the template was judged: got %t, want %t: %v", name, judged, test.judged, err)
		}
		if test.judged && string(completed) != template {
			t.Errorf("%s: got the template %s, want %s", name, completed, template)
		}
	}
}
