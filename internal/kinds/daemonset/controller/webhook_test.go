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

func daemonSets(t *testing.T, server *webhooktest.APIServer) *daemonSetWebhooks {
	t.Helper()
	return &daemonSetWebhooks{framework.Templates{Validator: server.Validator(t), Complete: true}}
}

// ADS-015 (part): the template is stored as it was written, whatever the gates, on create and when it
// changes; nothing asks the API server for defaults.
func TestTemplatesOfDaemonSetsStay(t *testing.T) {
	w := daemonSets(t, &webhooktest.APIServer{Answer: func(framework.Document) (int, any) {
		t.Error("the API server was asked")
		return 500, nil
	}})
	w.HostPorts = true
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		given := webhooktest.DaemonSet(version, "", `"minReadySeconds":5`)
		for _, old := range []string{"", strings.Replace(given, `"image":"i"`, `"image":"j"`, 1)} {
			operation := admissionv1.Create
			if old != "" {
				operation = admissionv1.Update
			}
			got := webhooktest.Review(t, admission.HandlerFunc(w.mutate), operation, given, old)
			if !got.Allowed {
				t.Errorf("%s of a complete object: %+v", operation, got.Result)
			}
			if len(got.Warnings) > 0 {
				t.Errorf("%s of a complete object: got warnings %q, want none", operation, got.Warnings)
			}
			if len(got.Patch) > 0 && string(got.Patch) != "[]" {
				t.Errorf("%s of a complete object: got the patch %s, want none", operation, got.Patch)
			}
		}
		got := webhooktest.Review(t, admission.HandlerFunc(w.mutate), "CREATE", strings.Replace(given, `"burstReplicas":250,`, "", 1), "")
		if diff := cmp.Diff(`[{"op":"add","path":"/spec/burstReplicas","value":250}]`, string(got.Patch)); diff != "" { // ADS-012 (part)
			t.Errorf("patch of an object without burstReplicas (-want +got):\n%s", diff)
		}
	}
}

// ADS-020, ADS-023 (part): whatever part finds a fault, the refusal has it, with 422, and the fields of the
// version that the user wrote. The API server is asked about a template that is new or changed.
func TestARefusalOfADaemonSetNamesAllFaults(t *testing.T) {
	w := daemonSets(t, &webhooktest.APIServer{Answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
		metav1.StatusCause{Type: "FieldValueRequired", Field: "template.spec.containers[0].image", Message: "Required value"})})
	for version, more := range map[string][]string{"v1beta1": nil, "v1alpha1": {"metadata.annotations[apps.kruise.io/v1beta1-only-fields]"}} {
		given := strings.Replace(webhooktest.DaemonSet(version, webhooktest.Annotated(`{"scaleStrategi":{}}`), `"minReadySeconds":-1`), `"burstReplicas":250`, `"burstReplicas":0`, 1)
		got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", given, "")
		if got.Allowed {
			t.Fatalf("a bad object in %s is admitted", version)
		}
		if got.Result.Code != http.StatusUnprocessableEntity {
			t.Fatalf("a bad object in %s: refused with %+v, want code 422", version, got.Result)
		}
		want := append([]string{"spec.minReadySeconds", "spec.burstReplicas"}, more...)
		if diff := cmp.Diff(append(want, "spec.template.spec.containers[0].image"), webhooktest.Fields(got)); diff != "" {
			t.Errorf("refused fields on creation in %s (-want +got):\n%s", version, diff)
		}
		good := webhooktest.DaemonSet(version, "", "")
		if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", given, good); got.Allowed {
			t.Errorf("a bad update in %s is admitted", version)
		} else if got.Result.Code != http.StatusUnprocessableEntity {
			t.Errorf("a bad update in %s: refused with %+v, want code 422", version, got.Result)
		} else if diff := cmp.Diff(want, webhooktest.Fields(got)); diff != "" {
			t.Errorf("refused fields on an update in %s (-want +got):\n%s", version, diff)
		}
		if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", strings.Replace(good, "250", "20", 1), good); !got.Allowed {
			t.Errorf("a template that stays: %+v", got.Result)
		}
	}
	for name, given := range map[string]string{"wrong types": `{"apiVersion":"apps.kruise.io/v1beta1","spec":{"minReadySeconds":"x"}}`,
		"no version of ours": webhooktest.DaemonSet("v2", "", "")} {
		if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", given, ""); got.Allowed {
			t.Errorf("%s: admitted", name)
		} else if got.Result.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: refused with %+v, want code 422", name, got.Result)
		}
	}
}

// ADS-031 (part): what is admitted may come with a warning. An update of metadata is not judged, unless it
// changes the annotation that is a part of the spec.
func TestAdmittedDaemonSets(t *testing.T) {
	w := daemonSets(t, &webhooktest.APIServer{Answer: webhooktest.Accepts})
	surging := strings.Replace(strings.Replace(webhooktest.DaemonSet("v1beta1", "", ""), `"maxUnavailable":1,"maxSurge":0`, `"maxSurge":1`, 1),
		`"image":"i"`, `"image":"i","ports":[{"containerPort":80,"hostPort":80}]`, 1)
	for given, warnings := range map[string]int{surging: 1, webhooktest.DaemonSet("v1beta1", "", ""): 0, webhooktest.DaemonSet("v1alpha1", "", ""): 0} {
		got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", given, "")
		if !got.Allowed {
			t.Errorf("admission of %s: %+v", given, got.Result)
		}
		if len(got.Warnings) != warnings {
			t.Errorf("warnings for %s: got %q, want %d", given, got.Warnings, warnings)
		}
	}
	old := webhooktest.DaemonSet("v1alpha1", `"finalizers":["x"],`+webhooktest.Annotated(`{"scaleStrategy":{}}`), `"minReadySeconds":-1`)
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", strings.Replace(old, `["x"]`, `[]`, 1), old); !got.Allowed {
		t.Errorf("the last finalizer: %+v", got.Result)
	}
	worse := webhooktest.DaemonSet("v1alpha1", webhooktest.Annotated(`{"scaleStrategi":{}}`), `"minReadySeconds":-1`)
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", worse, old); got.Allowed {
		t.Error("an annotation with an unknown field is admitted")
	} else if !strings.Contains(got.Result.Message, "scaleStrategi") {
		t.Errorf("an annotation with an unknown field: refused with %q, want the field in it", got.Result.Message)
	}
}
