package controller

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// PPM-020: without the gates PodProbeMarkers are refused with 403, which names the gate. PPM-021 (part),
// PPM-022 (part): faults are refused with 400; a fault that is stored already refuses no update.
func TestPodProbeMarkers(t *testing.T) {
	kind := &framework.Kind{Group: "apps.kruise.io", Name: "PodProbeMarker", Plural: "podprobemarkers", Version: "v1alpha1", Webhooks: PodProbeMarkers,
		Gates: framework.Gates{{features.KruiseDaemon}, {features.PodProbeMarkerGate}}}
	ask := func(gates, object, old string) admission.Response {
		parsed, err := features.Parse(gates)
		if err != nil {
			t.Fatal(err)
		}
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)}}}
		if old != "" {
			request.Operation, request.OldObject.Raw = admissionv1.Update, []byte(old)
		}
		return kind.Handlers(&framework.Environment{Gates: parsed})["/validate-apps-kruise-io-podprobemarker"].Handle(t.Context(), request)
	}
	object := func(spec string) string { return `{"metadata":{"name":"a","namespace":"shop"},"spec":` + spec + `}` }
	good := object(`{"selector":{"matchLabels":{"app":"web"}},"probes":[{"name":"idle","containerName":"app",` +
		`"podConditionType":"example.com/idle","probe":{"exec":{"command":["a"]}},"markerPolicy":[]}]}`)
	if r := ask("", good, ""); !r.Allowed {
		t.Errorf("a good marker: %+v", r.Result)
	}
	for gates, want := range map[string]string{"PodProbeMarkerGate=false": "PodProbeMarkerGate", "KruiseDaemon=false": "KruiseDaemon"} {
		if r := ask(gates, good, ""); r.Allowed {
			t.Errorf("%s: admitted", gates)
		} else if r.Result.Code != 403 {
			t.Errorf("%s: refused with %+v, want code 403", gates, r.Result)
		} else if !strings.Contains(r.Result.Message, want) {
			t.Errorf("%s: refused with %q, want %q in it", gates, r.Result.Message, want)
		}
	}
	bad := strings.Replace(good, `"containerName":"app"`, `"containerName":""`, 1)
	if r := ask("", bad, ""); r.Allowed {
		t.Error("a probe without a container is admitted")
	} else if r.Result.Code != 400 {
		t.Errorf("a probe without a container: refused with %+v, want code 400", r.Result)
	} else if !strings.Contains(r.Result.Message, "spec.probes[0].containerName") {
		t.Errorf("a probe without a container: refused with %q, want the field in it", r.Result.Message)
	}
	if r := ask("", strings.Replace(bad, `"name":"idle"`, `"name":"busy"`, 1), bad); !r.Allowed {
		t.Errorf("a stored fault: %+v", r.Result)
	}
	if r := ask("", strings.Replace(good, `"app":"web"`, `"app":"x"`, 1), good); r.Allowed {
		t.Error("another selector is admitted")
	} else if !strings.Contains(r.Result.Message, "selector must be immutable") {
		t.Errorf("another selector: refused with %q, want it called immutable", r.Result.Message)
	}
	for _, broken := range []string{`{"spec":{"probes":7}}`, `7`} {
		if r := ask("", broken, ""); r.Allowed {
			t.Errorf("admitted although it cannot be read: %s", broken)
		}
	}
}
