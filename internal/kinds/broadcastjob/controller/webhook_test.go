package controller

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

func broadcastJobs(t *testing.T, server *webhooktest.APIServer, defaults bool) *broadcastJobWebhooks {
	t.Helper()
	return &broadcastJobWebhooks{framework.Templates{Validator: server.Validator(t), Complete: defaults}}
}

// bcj is a complete BroadcastJob.
func bcj(version string) string {
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"BroadcastJob","metadata":{"name":"check","namespace":"shop"},"spec":{` +
		`"parallelism":5,"completionPolicy":{"type":"Always"},"failurePolicy":{"type":"FailFast"},"template":` +
		strings.Replace(webhooktest.GoodTemplate, `"spec":{`, `"spec":{"restartPolicy":"Never",`, 1) + `}}`
}

// TestDefaultsOfBroadcastJobs shows BJ-015: the API server completes the template on create, and on update if
// it changes; nothing is asked with the gate.
func TestDefaultsOfBroadcastJobs(t *testing.T) {
	asked := 0
	server := &webhooktest.APIServer{Answer: func(template framework.Document) (int, any) {
		asked++
		template["spec"].(framework.Document)["dnsPolicy"] = "ClusterFirst"
		return webhooktest.Accepts(template)
	}}
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		given := bcj(version)
		for name, test := range map[string]struct {
			defaults bool
			old      string
			asks     bool
		}{
			"created":                      {true, "", true},
			"created, with the gate":       {false, "", false},
			"the template changes":         {true, strings.Replace(given, `"image":"i"`, `"image":"j"`, 1), true},
			"the template stays":           {true, strings.Replace(given, `"parallelism":5`, `"parallelism":6`, 1), false},
			"it changes, with the gate on": {false, strings.Replace(given, `"image":"i"`, `"image":"j"`, 1), false},
		} {
			asked = 0
			operation := admissionv1.Create
			if test.old != "" {
				operation = admissionv1.Update
			}
			got := webhooktest.Review(t, admission.HandlerFunc(broadcastJobs(t, server, test.defaults).mutate), operation, given, test.old)
			patch := string(got.Patch)
			if !got.Allowed {
				t.Errorf("%s, %s: admission: %+v", version, name, got.Result)
			}
			if len(got.Warnings) > 0 {
				t.Errorf("%s, %s: warnings: got %q, want none", version, name, got.Warnings)
			}
			if (asked > 0) != test.asks {
				t.Errorf("%s, %s: the API server was asked %d times, want it asked: %t", version, name, asked, test.asks)
			}
			for _, operation := range []string{`"/spec/template/spec/dnsPolicy"`,
				`{"op":"add","path":"/spec/template/spec/containers/0/imagePullPolicy","value":"Always"}`} {
				if strings.Contains(patch, operation) != test.asks && test.old == "" {
					t.Errorf("%s, %s: patch %s: want %t for %s", version, name, patch, test.asks, operation)
				}
			}
		}
		ports := strings.Replace(strings.Replace(given, `"restartPolicy"`, `"hostNetwork":true,"restartPolicy"`, 1), `"image":"i"`,
			`"image":"i","ports":[{"containerPort":80}]`, 1)
		for _, gate := range []bool{true, false} {
			w := broadcastJobs(t, server, true)
			w.HostPorts = gate
			if got := webhooktest.Review(t, admission.HandlerFunc(w.mutate), "CREATE", ports, ""); strings.Contains(string(got.Patch), "hostPort") != gate {
				t.Errorf("host ports, gate %t: %s", gate, got.Patch)
			}
		}
	}
}

// TestARefusalOfABroadcastJobNamesAllFaults shows BJ-027, BJ-024 (part) and BJ-025 (part): whatever part
// finds a fault, the refusal has it, with 422; updates are judged, too.
func TestARefusalOfABroadcastJobNamesAllFaults(t *testing.T) {
	w := broadcastJobs(t, &webhooktest.APIServer{Answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
		metav1.StatusCause{Type: "FieldValueRequired", Field: "template.spec.containers[0].image", Message: "Required value"})}, true)
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		bad := strings.Replace(strings.Replace(bcj(version), `"parallelism":5`, `"parallelism":-5`, 1), `"FailFast"`, `"Cry"`, 1)
		want := []string{"spec.parallelism", "spec.failurePolicy.type"}
		got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", bad, "")
		want = append(want, "spec.template.spec.containers[0].image")
		if diff := cmp.Diff(want, webhooktest.Fields(got)); diff != "" {
			t.Errorf("refused fields on creation in %s (-want +got):\n%s", version, diff)
		}
		want = want[:2]
		if got.Allowed {
			t.Errorf("a bad object in %s is admitted", version)
		} else if got.Result.Code != http.StatusUnprocessableEntity {
			t.Errorf("a bad object in %s: refused by %d, want 422: %+v", version, got.Result.Code, got.Result)
		}
		if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", bad, bcj(version)); cmp.Diff(want, webhooktest.Fields(got)) != "" {
			t.Errorf("an update: %+v", got.Result)
		}
	}
	for name, given := range map[string]string{"wrong types": `{"apiVersion":"apps.kruise.io/v1beta1","spec":{"paused":"x"}}`,
		"no version of ours": bcj("v2")} {
		if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", given, ""); got.Allowed {
			t.Errorf("%s: admitted", name)
		} else if got.Result.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: refused by %d, want 422: %+v", name, got.Result.Code, got.Result)
		}
	}
}

// TestAdmittedBroadcastJobs shows BJ-025 (part): what is admitted may come with a warning.
func TestAdmittedBroadcastJobs(t *testing.T) {
	w := broadcastJobs(t, &webhooktest.APIServer{Answer: webhooktest.Accepts}, true)
	old := strings.TrimSuffix(bcj("v1beta1"), "}") + `,"status":{"phase":"completed"}}`
	changed := strings.Replace(old, `"image":"i"`, `"image":"j"`, 1)
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", changed, old); !got.Allowed {
		t.Errorf("another template of a completed job: %+v", got.Result)
	} else if len(got.Warnings) != 1 {
		t.Errorf("another template of a completed job: got warnings %q, want one", got.Warnings)
	}
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", bcj("v1alpha1"), ""); !got.Allowed {
		t.Errorf("creation in v1alpha1: %+v", got.Result)
	} else if len(got.Warnings) > 0 {
		t.Errorf("creation in v1alpha1: got warnings %q, want none", got.Warnings)
	}
}
