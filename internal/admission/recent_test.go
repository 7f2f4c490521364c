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

	"github.com/afloat-project/afloat/internal/admission/configuration"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/framework"
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
	podRules
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
	answer := handle(t.Context(), podRequest(admissionapi.Create, "", `"a":"b"`))
	if !answer.Allowed {
		t.Errorf("a recent pod: %+v", answer.Result)
	}
	if len(answer.Patches) == 0 {
		t.Error("a recent pod is not changed")
	}
	if read := strings.Join(rules.namespaces, " "); read != "default" {
		t.Errorf("rules were read for namespaces: got %q, want default", read)
	}
	rules.err = errors.New("no answer")
	if answer := handle(t.Context(), podRequest(admissionapi.Create, "", `"a":"b"`)); answer.Allowed {
		t.Error("a pod whose rules cannot be read is admitted")
	} else if answer.Result.Code != http.StatusInternalServerError {
		t.Errorf("a pod whose rules cannot be read: refused with %+v, want code 500", answer.Result)
	}
	rules.err = nil
	probe := admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{Operation: admissionapi.Create, Namespace: "default",
		Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"p","labels":{"a":"b"},"annotations":{"` +
			configuration.ProbeAnnotation + `":"abc"}},"spec":{"containers":[{"name":"app"}]}}`)}}}
	for _, trial := range []bool{true, false} {
		probe.DryRun = &trial
		answer := handle(t.Context(), probe)
		if answer.Allowed == trial {
			t.Errorf("trial %t: %+v", trial, answer)
		}
		if trial {
			recent := recentPods(nil)
			refusal := errors.New("admission webhook denied the request: " + answer.Result.Message)
			if !recent.Found(refusal, "abc") {
				t.Errorf("the token abc was not found in %q", answer.Result.Message)
			}
			if recent.Found(refusal, "abcd") {
				t.Errorf("the token abcd was found in %q", answer.Result.Message)
			}
			if recent.Found(nil, "abc") {
				t.Error("a token was found without a refusal")
			}
		}
	}
}

// A rule is announced before it is accepted, unless the request is a dry run. If it cannot be announced,
// there is a warning and no refusal.
func TestRulesAreAnnounced(t *testing.T) {
	allowed, trial := admission.Allowed(""), true
	by := &announcements{}
	answer := framework.Announced(t.Context(), by, &admission.Request{}, "x", allowed)
	if !answer.Allowed {
		t.Errorf("admission: %+v", answer.Result)
	}
	if len(answer.Warnings) > 0 {
		t.Errorf("warnings: got %q, want none", answer.Warnings)
	}
	if len(by.expressions) != 1 {
		t.Errorf("announced: got %q, want one", by.expressions)
	}
	if framework.Announced(t.Context(), by, &admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{DryRun: &trial}}, "x",
		allowed); len(by.expressions) != 1 {
		t.Error("a trial is announced")
	}
	by.err = errors.New("no rights")
	if answer := framework.Announced(t.Context(), by, &admission.Request{}, "x", allowed); !answer.Allowed {
		t.Errorf("admission without rights to announce: %+v", answer.Result)
	} else if len(answer.Warnings) != 1 || !strings.Contains(answer.Warnings[0], "no rights") {
		t.Errorf("warnings without rights to announce: got %q, want one that says so", answer.Warnings)
	}
	if answer := framework.Announced(t.Context(), nil, &admission.Request{}, "x", allowed); !answer.Allowed {
		t.Errorf("admission where nothing is announced: %+v", answer.Result)
	}
}
