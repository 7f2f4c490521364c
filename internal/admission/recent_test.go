package admission

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionapi "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/admission/pod"
)

// announcements records what is announced, and returns its error if it has one.
type announcements struct {
	expressions []string
	err         error
}

func (a *announcements) Announce(_ context.Context, expression string) error {
	a.expressions = append(a.expressions, expression)
	return a.err
}

// learned records the namespaces that were read.
type learned struct {
	namespaces []string
	err        error
}

func (l *learned) Learn(_ context.Context, namespace string) error {
	l.namespaces = append(l.namespaces, namespace)
	return l.err
}

// A pod of a recent rule is changed after the rules were read from the API server, and refused if they cannot
// be read. A probing pod is refused with its token, and only in a dry run.
func TestRecentPods(t *testing.T) {
	mutate := mutatePod(newPodChain(false, nil, nil, pod.NewSidecars(oneSidecar{}, false, time.Now)), false)
	rules := &learned{}
	handle := mutateRecentPod(mutate, rules)
	if answer := handle(t.Context(), podRequest(admissionapi.Create, "", `"a":"b"`)); !answer.Allowed || len(answer.Patches) == 0 ||
		strings.Join(rules.namespaces, " ") != "default" {
		t.Errorf("%+v, read: %v", answer, rules.namespaces)
	}
	rules.err = errors.New("no answer")
	if answer := handle(t.Context(), podRequest(admissionapi.Create, "", `"a":"b"`)); answer.Allowed ||
		answer.Result.Code != http.StatusInternalServerError {
		t.Errorf("%+v", answer)
	}
	rules.err = nil
	probe := admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{Operation: admissionapi.Create, Namespace: "default",
		Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"p","labels":{"a":"b"},"annotations":{"` +
			certificate.ProbeAnnotation + `":"abc"}},"spec":{"containers":[{"name":"app"}]}}`)}}}
	for _, trial := range []bool{true, false} {
		probe.DryRun = &trial
		answer := handle(t.Context(), probe)
		if answer.Allowed == trial {
			t.Errorf("trial %t: %+v", trial, answer)
		}
		if trial {
			recent := recentPods(nil)
			refusal := errors.New("admission webhook denied the request: " + answer.Result.Message)
			if !recent.Found(refusal, "abc") || recent.Found(refusal, "abcd") || recent.Found(nil, "abc") {
				t.Errorf("%s", answer.Result.Message)
			}
		}
	}
}

// A rule is announced before it is accepted, unless the request is a dry run. If it cannot be announced,
// there is a warning and no refusal.
func TestRulesAreAnnounced(t *testing.T) {
	allowed, trial := admission.Allowed(""), true
	by := &announcements{}
	if answer := announced(t.Context(), by, &admission.Request{}, "x", allowed); !answer.Allowed || len(answer.Warnings) > 0 ||
		len(by.expressions) != 1 {
		t.Errorf("%+v %v", answer, by.expressions)
	}
	if announced(t.Context(), by, &admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{DryRun: &trial}}, "x",
		allowed); len(by.expressions) != 1 {
		t.Error("a trial is announced")
	}
	by.err = errors.New("no rights")
	if answer := announced(t.Context(), by, &admission.Request{}, "x", allowed); !answer.Allowed || len(answer.Warnings) != 1 ||
		!strings.Contains(answer.Warnings[0], "no rights") {
		t.Errorf("%+v", answer)
	}
	if answer := announced(t.Context(), nil, &admission.Request{}, "x", allowed); !answer.Allowed {
		t.Errorf("%+v", answer)
	}
}
