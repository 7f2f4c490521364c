package admission

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

func convert(t *testing.T, body string) (int, document) {
	t.Helper()
	recorder := httptest.NewRecorder()
	(&conversionHandler{log: logr.Discard()}).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), "POST", convertPath, strings.NewReader(body)))
	if recorder.Code != 200 {
		return recorder.Code, nil
	}
	answer, err := decodeDocument(recorder.Body.Bytes())
	if err != nil {
		t.Fatalf("%s: %v", recorder.Body, err)
	}
	return recorder.Code, answer
}

// CS-250, OPS-070, OPS-072: lists with objects of both versions, one of which does not fit its types, convert as a whole.
func TestConvertReview(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		good := object("v1alpha1", goodTemplate, `"updateStrategy":{"type":"InPlaceOnly"}`)
		same := object("v1beta1", goodTemplate, "")
		broken := strings.Replace(object("v1alpha1", goodTemplate, ""), `"replicas":1`, `"replicas":"many"`, 1)
		code, got := convert(t, `{"apiVersion":"apiextensions.k8s.io/`+version+`","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"apps.kruise.io/v1beta1","objects":[`+good+`,`+same+`,`+broken+`]}}`)
		if code != 200 || got["apiVersion"] != "apiextensions.k8s.io/"+version {
			t.Fatalf("%d %v", code, got)
		}
		response := got["response"].(document)
		objects, _ := response["convertedObjects"].([]any)
		if response["uid"] != "u" || response["result"].(document)["status"] != "Success" || len(objects) != 3 {
			t.Fatalf("%v", response)
		}
		for i, item := range objects {
			converted := item.(document)
			if converted["apiVersion"] != "apps.kruise.io/v1beta1" || converted["kind"] != "CloneSet" {
				t.Errorf("object %d: %v", i, converted)
			}
			container := converted["spec"].(document)["template"].(document)["spec"].(document)["containers"].([]any)[0].(document)
			if container["future"] != json.Number("12345678901234567890") {
				t.Errorf("object %d: CS-016: unknown field became %v", i, container["future"])
			}
		}
		strategy := objects[0].(document)["spec"].(document)["updateStrategy"]
		if diff := cmp.Diff(document{"type": "RollingUpdate", "rollingUpdate": document{"podUpdatePolicy": "InPlaceOnly"}}, strategy); diff != "" {
			t.Error(diff)
		}
		if objects[2].(document)["spec"].(document)["replicas"] != "many" {
			t.Error("the broken object lost something")
		}
	}
}

func TestConvertRefusesWhatIsNotOurs(t *testing.T) {
	code, got := convert(t, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"apps.kruise.io/v2","objects":[`+object("v1beta1", goodTemplate, "")+`]}}`)
	if code != 200 || got["response"].(document)["result"].(document)["status"] != "Failure" {
		t.Errorf("%d %v", code, got)
	}
	if code, _ := convert(t, `{}`); code != 400 {
		t.Errorf("no review: %d", code)
	}
	if _, err := attempt(func([]byte) (any, error) { panic("oops") }, nil); err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("OPS-066 panic: %v", err)
	}
}

// CS-018, OPS-060 to OPS-062, OPS-065: the shipped entries and the handlers agree.
func TestShippedConfigurationsMatchHandlers(t *testing.T) {
	handlers := admissionHandlers(&cloneSetWebhooks{})
	check := func(file, configuration string, webhooks []admissionv1.ValidatingWebhook, name string, annotations map[string]string, want map[string][]admissionv1.OperationType) {
		if name != configuration || annotations["template"] != "" {
			t.Errorf("%s: name %s, annotations %v", file, name, annotations)
		}
		got := map[string][]admissionv1.OperationType{}
		for _, hook := range webhooks {
			path := *hook.ClientConfig.Service.Path
			if handlers[path] == nil {
				t.Errorf("%s: nothing handles %s", hook.Name, path)
			}
			if *hook.FailurePolicy != admissionv1.Fail || *hook.SideEffects != admissionv1.SideEffectClassNone || *hook.MatchPolicy != admissionv1.Equivalent || *hook.TimeoutSeconds != 30 ||
				cmp.Diff([]string{"v1", "v1beta1"}, hook.AdmissionReviewVersions) != "" || cmp.Diff([]string{"v1alpha1", "v1beta1"}, hook.Rules[0].APIVersions) != "" ||
				cmp.Diff([]string{"clonesets"}, hook.Rules[0].Resources) != "" {
				t.Errorf("%s: %+v", hook.Name, hook)
			}
			got[hook.Name+" "+path] = hook.Rules[0].Operations
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
	var m admissionv1.ValidatingWebhookConfiguration // both kinds are alike in what is compared
	read(t, "../../config/webhook/mutating.yaml", &m)
	check("mutating", mutatingConfiguration, m.Webhooks, m.Name, m.Annotations, map[string][]admissionv1.OperationType{"mcloneset.kb.io " + mutateCloneSetPath: {"CREATE", "UPDATE"}})
	var v admissionv1.ValidatingWebhookConfiguration
	read(t, "../../config/webhook/validating.yaml", &v)
	check("validating", validatingConfiguration, v.Webhooks, v.Name, v.Annotations, map[string][]admissionv1.OperationType{"vcloneset.kb.io " + validateCloneSetPath: {"CREATE", "UPDATE", "DELETE"}})
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatal(err)
	}
}
