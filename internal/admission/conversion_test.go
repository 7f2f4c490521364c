package admission

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatchapply "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/admission/protection"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	sidecarsetcontroller "github.com/afloat-project/afloat/internal/kinds/sidecarset/controller"
)

func convert(t *testing.T, body string) (int, framework.Document) {
	t.Helper()
	recorder := httptest.NewRecorder()
	(&conversionHandler{log: logr.Discard(), kinds: Registered}).ServeHTTP(recorder,
		httptest.NewRequestWithContext(t.Context(), "POST", convertPath, strings.NewReader(body)))
	if recorder.Code != 200 {
		return recorder.Code, nil
	}
	answer, err := framework.DecodeDocument(recorder.Body.Bytes())
	if err != nil {
		t.Fatalf("reading the answer %s: %v", recorder.Body, err)
	}
	return recorder.Code, answer
}

// CS-250, OPS-070, OPS-072: lists with objects of both versions, one of which does not fit its types, convert
// as a whole.
func TestListsOfBothVersionsConvertAsAWhole(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		good := webhooktest.CloneSet("v1alpha1", webhooktest.GoodTemplate, `"updateStrategy":{"type":"InPlaceOnly"}`)
		same := webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, "")
		broken := strings.Replace(webhooktest.CloneSet("v1alpha1", webhooktest.GoodTemplate, ""), `"replicas":1`, `"replicas":"many"`, 1)
		code, got := convert(t, `{"apiVersion":"apiextensions.k8s.io/`+version+
			`","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"apps.kruise.io/v1beta1","objects":[`+good+`,`+same+`,`+
			broken+`]}}`)
		if code != 200 {
			t.Fatalf("status: got %d, want 200", code)
		}
		if want := "apiextensions.k8s.io/" + version; got["apiVersion"] != want {
			t.Fatalf("version of the answer: got %v, want %s", got["apiVersion"], want)
		}
		response := got["response"].(framework.Document)
		objects, _ := response["convertedObjects"].([]any)
		if response["uid"] != "u" {
			t.Fatalf("UID of the response: got %v, want that of the request, u", response["uid"])
		}
		if response["result"].(framework.Document)["status"] != "Success" {
			t.Fatalf("result: got %v, want Success", response["result"])
		}
		if len(objects) != 3 {
			t.Fatalf("converted objects: got %d, want 3: %v", len(objects), objects)
		}
		for i, item := range objects {
			converted := item.(framework.Document)
			if converted["apiVersion"] != "apps.kruise.io/v1beta1" {
				t.Errorf("object %d: version %v, want apps.kruise.io/v1beta1", i, converted["apiVersion"])
			}
			if converted["kind"] != "CloneSet" {
				t.Errorf("object %d: kind %v, want CloneSet", i, converted["kind"])
			}
			container := converted["spec"].(framework.Document)["template"].(framework.Document)["spec"].(framework.Document)["containers"].([]any)[0].(framework.Document)
			if container["future"] != json.Number("12345678901234567890") {
				t.Errorf("object %d: CS-016: unknown field became %v", i, container["future"])
			}
		}
		strategy := objects[0].(framework.Document)["spec"].(framework.Document)["updateStrategy"]
		if diff := cmp.Diff(framework.Document{"type": "RollingUpdate", "rollingUpdate": framework.Document{"podUpdatePolicy": "InPlaceOnly"}},
			strategy); diff != "" {
			t.Errorf("update strategy (-want +got):\n%s", diff)
		}
		if objects[2].(framework.Document)["spec"].(framework.Document)["replicas"] != "many" {
			t.Error("the broken object lost something")
		}
	}
}

func TestConvertRefusesWhatIsNotOurs(t *testing.T) {
	code, got := convert(t, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"apps.kruise.io/v2","objects":[`+webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, "")+`]}}`)
	if code != 200 {
		t.Errorf("status for an unknown version: got %d, want 200", code)
	} else if result := got["response"].(framework.Document)["result"].(framework.Document); result["status"] != "Failure" {
		t.Errorf("result for an unknown version: got %v, want Failure", result)
	}
	if code, _ := convert(t, `{}`); code != 400 {
		t.Errorf("no review: %d", code)
	}
	panics := framework.Conversion{{framework.V1alpha1, framework.V1beta1}: func([]byte, schema.GroupVersionKind) ([]byte, error) { panic("oops") }}
	if _, err := panics.Convert(nil, schema.GroupVersionKind{Version: framework.V1alpha1}, schema.GroupVersionKind{Version: framework.V1beta1}); err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("OPS-066 panic: got %v, want it as an error", err)
	}
}

// OPS-072, OPS-112: fields of a newer release, that the types do not have, go there and back.
func TestConvertCarriesWhatItDoesNotKnow(t *testing.T) {
	cases := map[string]struct{ from, to, members, at string }{
		"in the spec": {"v1beta1", "v1alpha1", `"future":{"a":[1,12345678901234567890]}`, "spec.future.a.1"},
		"in an object that moves": {"v1beta1", "v1alpha1", `"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"future":"x"}}`,
			"spec.updateStrategy.future"},
		"in an object that moves back": {"v1alpha1", "v1beta1",
			`"updateStrategy":{"type":"InPlaceOnly","inPlaceUpdateStrategy":{"future":"x"}}`,
			"spec.updateStrategy.rollingUpdate.inPlaceUpdateStrategy.future"},
		"beside what moves": {"v1beta1", "v1alpha1", `"updateStrategy":{"type":"OnDelete","future":{"x":{},"y":[5]}}`,
			"spec.updateStrategy.rollingUpdate.future.x"},
		"beside what does not move": {"v1alpha1", "v1beta1", `"updateStrategy":{"type":"OnDelete","future":{"x":{},"y":[5]}}`,
			"spec.updateStrategy.rollingUpdate.future.y"},
		"in an item": {"v1alpha1", "v1beta1",
			`"updateStrategy":{"type":"ReCreate","scatterStrategy":[{"key":"a","value":"b"},{"key":"c","value":"d","future":true}]}`,
			"spec.updateStrategy.rollingUpdate.scatterStrategy.1.future"},
		"in another case of letters": {"v1beta1", "v1alpha1", `"Replicas":7`, "spec.Replicas"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			given := webhooktest.CloneSet(test.from, webhooktest.GoodTemplate, test.members)
			there := convertOne(t, given, test.to)
			if !has(there, test.at) {
				t.Errorf("%s is not in %v", test.at, there)
			}
			text, err := json.Marshal(there)
			if err != nil {
				t.Fatal(err)
			}
			want, err := framework.DecodeDocument([]byte(given))
			if err != nil {
				t.Fatal(err)
			}
			back := convertOne(t, string(text), test.from)
			if diff := cmp.Diff(want["spec"], back["spec"]); diff != "" {
				t.Errorf("(-given +back):\n%s", diff)
			}
		})
	}
}

// OPS-070: all kinds whose versions differ convert, and fields that their types do not know go along.
func TestConvertAllKinds(t *testing.T) {
	for kind, spec := range map[string]string{
		"CloneSet":                 `{"replicas":1,"future":1}`,
		"ContainerRecreateRequest": `{"podName":"p","containers":[{"name":"a","future":2}]}`,
		"NodeImage":                `{"images":{"a.b/c":{"tags":[{"tag":"1.2","future":3}]}}}`,
	} {
		for from, to := range map[string]string{"v1alpha1": "v1beta1", "v1beta1": "v1alpha1"} {
			got := convertOne(t, `{"apiVersion":"apps.kruise.io/`+from+`","kind":"`+kind+`","metadata":{"name":"x"},"spec":`+spec+`}`, to)
			want, err := framework.DecodeDocument([]byte(spec))
			if err != nil {
				t.Fatal(err)
			}
			if got["apiVersion"] != "apps.kruise.io/"+to {
				t.Errorf("version: got %v, want apps.kruise.io/%s", got["apiVersion"], to)
			}
			if got["kind"] != kind {
				t.Errorf("kind: got %v, want %s", got["kind"], kind)
			}
			members, _ := got["spec"].(framework.Document)
			delete(members, "template")
			delete(members, "selector")
			delete(members, "updateStrategy")
			delete(members, "scaleStrategy")
			if diff := cmp.Diff(want, members); diff != "" {
				t.Errorf("%s from %s (-given +got):\n%s", kind, from, diff)
			}
		}
	}
}

// has tells whether there is something at a path such as spec.containers.0.name.
func has(value any, path string) bool {
	for key := range strings.SplitSeq(path, ".") {
		var ok bool
		if value, ok = elementOf(value, key); !ok {
			return false
		}
	}
	return true
}

// convertOne converts an object to the version of its group.
func convertOne(t *testing.T, object, to string) framework.Document {
	t.Helper()
	given, err := framework.DecodeDocument([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	to = path.Join(path.Dir(given["apiVersion"].(string)), to)
	_, got := convert(t,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"`+to+
			`","objects":[`+object+`]}}`)
	objects, _ := got["response"].(framework.Document)["convertedObjects"].([]any)
	if len(objects) != 1 {
		t.Fatalf("conversion: got %v, want one object", got)
	}
	return objects[0].(framework.Document)
}

// OPS-066, OPS-072: for any text, conversion answers in the right form and does not panic.
func TestConvertHostileReviews(t *testing.T) {
	for _, body := range []string{"", "null", "[]", `{"request":null}`, `{"request":{}}`, `{"request":{"objects":null}}`,
		`{"request":{"objects":[null]}}`,
		`{"request":{"objects":["text",7,[],{}]}}`, `{"request":{"objects":[{"kind":null,"apiVersion":null}]}}`, `{"request":7}`,
		`{"request":{"desiredAPIVersion":"apps.kruise.io/v1alpha1","objects":[{"kind":"CloneSet","apiVersion":"apps.kruise.io/v1beta1","metadata":null,"spec":null,"status":null}]}}`,
		`{"request":{"desiredAPIVersion":"apps.kruise.io/v1beta1","objects":[{"kind":"CloneSet","apiVersion":"apps.kruise.io/v1alpha1","metadata":{"labels":null,"annotations":null},"spec":{"template":[],"volumeClaimTemplates":{},"scaleStrategy":null,"updateStrategy":{"scatterStrategy":[null],"inPlaceUpdateStrategy":null}}}]}}`} {
		code, got := convert(t, body)
		if code == 200 && got["response"].(framework.Document)["result"].(framework.Document)["status"] == nil {
			t.Errorf("%s: the answer has no result: %v", body, got)
		}
		if code != 200 && code != 400 {
			t.Errorf("%s: got status %d, want 200 or 400", body, code)
		}
	}
}

// versionsOf are the versions that the kind of a resource is served in.
func versionsOf(resource string) []string {
	if i := slices.IndexFunc(Registered, func(k framework.Kind) bool { return k.Plural == resource }); i >= 0 {
		return Registered[i].Versions()
	}
	return nil
}

// OPS-060, OPS-061, OPS-062, OPS-065: the shipped entries and the handlers agree.
// CS-018 too.
func TestShippedConfigurationsMatchHandlers(t *testing.T) {
	handlers := registered(t, podsIf(true, true), pod.NewDisruptions())
	check := func(file, configuration string, webhooks []admissionv1.ValidatingWebhook, name string, annotations map[string]string,
		want map[string][]admissionv1.OperationType) {
		if name != configuration {
			t.Errorf("%s: got name %s, want %s", file, name, configuration)
		}
		if len(annotations) > 0 {
			t.Errorf("%s: got annotations %v, want none", file, annotations)
		}
		got := map[string][]admissionv1.OperationType{}
		for _, hook := range webhooks {
			path := *hook.ClientConfig.Service.Path
			if handlers[path] == nil {
				t.Errorf("%s: nothing handles %s", hook.Name, path)
			}
			if hook.Name == mutatePodName { // OPS-063, OPS-067, CRR-087
				if *hook.FailurePolicy != admissionv1.Fail {
					t.Errorf("%s: failure policy %s, want Fail", hook.Name, *hook.FailurePolicy)
				}
				if len(hook.MatchConditions) != 1 {
					t.Errorf("%s: conditions %+v, want one", hook.Name, hook.MatchConditions)
				}
				if n := len(hook.NamespaceSelector.MatchExpressions); n != 2 {
					t.Errorf("%s: namespaces selected by %d expressions, want 2", hook.Name, n)
				}
				got[hook.Name+" "+path] = hook.Rules[0].Operations
				continue
			}
			if path == validatePodPath { // WS-100, WS-106, WS-188: the manager writes which requests are sent
				conditions := 1
				if hook.Name == validatePlacedEvictionName {
					conditions = 0
				}
				if *hook.FailurePolicy != admissionv1.Ignore {
					t.Errorf("%s: failure policy %s, want Ignore", hook.Name, *hook.FailurePolicy)
				}
				if *hook.SideEffects != admissionv1.SideEffectClassNoneOnDryRun {
					t.Errorf("%s: side effects %s, want NoneOnDryRun", hook.Name, *hook.SideEffects)
				}
				if len(hook.MatchConditions) != conditions {
					t.Errorf("%s: conditions %+v, want %d", hook.Name, hook.MatchConditions, conditions)
				} else if conditions > 0 && hook.MatchConditions[0].Expression != inSubset {
					t.Errorf("%s: condition %s, want %s", hook.Name, hook.MatchConditions[0].Expression, inSubset)
				}
				if *hook.TimeoutSeconds != 5 {
					t.Errorf("%s: timeout %d s, want 5 s", hook.Name, *hook.TimeoutSeconds)
				}
				if n := len(hook.NamespaceSelector.MatchExpressions); n != 2 {
					t.Errorf("%s: namespaces selected by %d expressions, want 2", hook.Name, n)
				}
				got[hook.Name+" "+path] = hook.Rules[0].Operations
				continue
			}
			if slices.ContainsFunc(protection.Kinds, func(k protection.Kind) bool { return k.Path == path }) {
				continue // TestShippedEntriesForProtectedKinds
			}
			sideEffects := admissionv1.SideEffectClassNone
			// They announce rules for pods, or tell in events what they refuse.
			if slices.Contains([]string{validateSidecarSetPath, validateWorkloadSpreadPath, validateCloneSetPath,
				validateStatefulSetPath, validateDaemonSetPath, "/validate-apps-kruise-io-uniteddeployment",
				"/validate-apps-kruise-io-persistentpodstate"}, path) {
				sideEffects = admissionv1.SideEffectClassNoneOnDryRun
			}
			if *hook.FailurePolicy != admissionv1.Fail {
				t.Errorf("%s: failure policy %s, want Fail", hook.Name, *hook.FailurePolicy)
			}
			if *hook.SideEffects != sideEffects {
				t.Errorf("%s: side effects %s, want %s", hook.Name, *hook.SideEffects, sideEffects)
			}
			if *hook.MatchPolicy != admissionv1.Equivalent {
				t.Errorf("%s: match policy %s, want Equivalent", hook.Name, *hook.MatchPolicy)
			}
			if *hook.TimeoutSeconds != 30 {
				t.Errorf("%s: timeout %d s, want 30 s", hook.Name, *hook.TimeoutSeconds)
			}
			if diff := cmp.Diff([]string{"v1", "v1beta1"}, hook.AdmissionReviewVersions); diff != "" {
				t.Errorf("%s: versions of reviews (-want +got):\n%s", hook.Name, diff)
			}
			resources := hook.Rules[0].Resources
			if diff := cmp.Diff(versionsOf(resources[0]), hook.Rules[0].APIVersions); diff != "" {
				t.Errorf("%s: versions of %s (-want +got):\n%s", hook.Name, resources[0], diff)
			}
			if want := strings.TrimSuffix(resources[0], "s"); !strings.HasPrefix(hook.Name[1:], want) {
				t.Errorf("%s: the name does not begin with its resource %s", hook.Name, want)
			}
			if len(resources) != 1 {
				t.Errorf("%s: resources %v, want one", hook.Name, resources)
			}
			got[hook.Name+" "+path] = hook.Rules[0].Operations
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
	var m admissionv1.ValidatingWebhookConfiguration // both kinds have the compared fields
	read(t, "../../config/webhook/mutating.yaml", &m)
	check("mutating", mutatingConfiguration, m.Webhooks, m.Name, m.Annotations,
		entries(handlers, "mutate", map[string][]admissionv1.OperationType{
			"muniteddeployment.kb.io /mutate-apps-kruise-io-uniteddeployment": {"CREATE", "UPDATE"},
			"mbroadcastjob.kb.io /mutate-apps-kruise-io-broadcastjob":         {"CREATE", "UPDATE"}, // BJ-010
			mutatePodName + " " + mutatePodPath:                               {"CREATE"}}))
	var v admissionv1.ValidatingWebhookConfiguration
	read(t, "../../config/webhook/validating.yaml", &v)
	check("validating", validatingConfiguration, v.Webhooks, v.Name, v.Annotations,
		entries(handlers, "validate", map[string][]admissionv1.OperationType{
			"vcloneset.kb.io " + validateCloneSetPath:                           {"CREATE", "UPDATE", "DELETE"},
			"vstatefulset.kb.io " + validateStatefulSetPath:                     {"CREATE", "UPDATE", "DELETE"}, // ASTS-013
			"vdaemonset.kb.io " + validateDaemonSetPath:                         {"CREATE", "UPDATE", "DELETE"}, // ADS-011
			"vuniteddeployment.kb.io /validate-apps-kruise-io-uniteddeployment": {"CREATE", "UPDATE", "DELETE"},
			"vbroadcastjob.kb.io /validate-apps-kruise-io-broadcastjob":         {"CREATE", "UPDATE"}, // BJ-010
			validatePlacedName + " " + validatePodPath:                          {"DELETE"},
			validatePlacedEvictionName + " " + validatePodPath:                  {"CREATE"}}))
}

// entries returns the named entries and those of all kinds that have a handler, by name and path, with their
// operations.
func entries(handlers map[string]admission.Handler, verb string,
	named map[string][]admissionv1.OperationType) map[string][]admissionv1.OperationType {
	for i := range Registered {
		kind := &Registered[i]
		suffix := ".kb.io "
		if strings.HasSuffix(kind.Name, "PullJob") {
			suffix = "-v1beta1.kb.io "
		}
		entry := verb[:1] + strings.ToLower(kind.Name) + suffix + kind.Path(verb)
		if handlers[kind.Path(verb)] != nil && named[entry] == nil {
			named[entry] = []admissionv1.OperationType{"CREATE", "UPDATE"}
		}
	}
	return named
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

// OPS-072: a NodeImage with very many images, each with an unknown field on its tag, keeps all of them, also
// with dots in the names.
func TestNoneOfManyUnknownFieldsIsLost(t *testing.T) {
	const count = 5000
	images := framework.Document{}
	for i := range count {
		images[fmt.Sprintf("registry.example/a.b/img%d", i)] = framework.Document{
			"tags": []any{framework.Document{"tag": "1.2", "future": json.Number(fmt.Sprint(i))}}}
	}
	text, err := json.Marshal(framework.Document{"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": framework.Document{"name": "n"},
		"spec": framework.Document{"images": images}})
	if err != nil {
		t.Fatal(err)
	}
	spent := cputime.Start(t)
	there := convertOne(t, string(text), "v1alpha1")
	if took := spent(); took > 20*time.Second { // about 0.1 s; minutes if the time grew with the square
		t.Errorf("%d fields took %s", count, took)
	}
	if diff := cmp.Diff(any(images), there["spec"].(framework.Document)["images"]); diff != "" {
		t.Errorf("(-given +got):\n%.2000s", diff)
	}
}

// OPS-072 (part): what is unknown may be deep and wide at the same time. Its many fields must not each cost a
// walk of the whole depth, since anybody who can reach the port can send such an object.
func TestDeepAndWideUnknownFieldsAreCarriedInOneWalk(t *testing.T) {
	const depth, width = 8000, 40000
	var wide []string
	for i := range width {
		wide = append(wide, fmt.Sprintf(`"k%d":1`, i))
	}
	text := `{"apiVersion":"apps.kruise.io/v1alpha1","kind":"CloneSet","metadata":{"name":"a"},"spec":{"unknown":` +
		strings.Repeat(`{"a":`, depth) + "{" + strings.Join(wide, ",") + "}" + strings.Repeat("}", depth) + "}}"
	spent := cputime.Start(t)
	there := convertOne(t, text, "v1beta1")
	if took := spent(); took > 8*time.Second { // about 0.3 s; with a walk for each field it was 12 s
		t.Errorf("%d KiB took %s", len(text)>>10, took)
	}
	carried := there["spec"].(framework.Document)["unknown"]
	for range depth {
		carried, _ = elementOf(carried, "a")
	}
	if members, ok := carried.(framework.Document); !ok || len(members) != width {
		t.Errorf("at the end of the depth are %d fields, want %d", len(members), width)
	}
}

// ADS-215 (part): fields of a newer release inside of those that only v1beta1 has are in the annotation,
// where the API server does not prune them, and return, whether or not the field that has an annotation of
// its own is set.
func TestFieldsOfANewerReleaseOfDaemonSets(t *testing.T) {
	for scale, want := range map[string]framework.Document{
		`{"partitionedScaling":true,"future":12345678901234567890}`: {pub.ProgressiveCreatePod: "true",
			pub.V1beta1OnlyFields: `{"scaleStrategy":{"future":12345678901234567890}}`},
		`{"future":{"a":[1]}}`:        {pub.V1beta1OnlyFields: `{"scaleStrategy":{"future":{"a":[1]}}}`},
		`{"partitionedScaling":true}`: {pub.ProgressiveCreatePod: "true"},
	} {
		beta := webhooktest.DaemonSet("v1beta1", "", `"scaleStrategy":`+scale+`,"future":true`)
		alpha := convertOne(t, beta, "v1alpha1")
		spec, meta := alpha["spec"].(framework.Document), alpha["metadata"].(framework.Document)
		if diff := cmp.Diff(want, meta["annotations"]); diff != "" {
			t.Errorf("annotations in v1alpha1 for %s (-want +got):\n%s", scale, diff)
		}
		if spec["scaleStrategy"] != nil {
			t.Errorf("the spec in v1alpha1 has a scale strategy: %v", spec)
		}
		if spec["future"] != true {
			t.Errorf("the unknown field has gone: %v", spec)
		}
		back := convertOne(t, webhooktest.Encoded(t, alpha), "v1beta1")
		given, err := framework.DecodeDocument([]byte(beta))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(given["spec"], back["spec"]); diff != "" {
			t.Errorf("spec after conversion there and back (-want +got):\n%s", diff)
		}
		if left := back["metadata"].(framework.Document)["annotations"]; left != nil {
			t.Errorf("annotations in v1beta1: got %v, want none", left)
		}
	}
	for _, garbage := range []string{"no", "[]", `{"scaleStrategy":5,"future":1}`} {
		got := convertOne(t, webhooktest.DaemonSet("v1alpha1", webhooktest.Annotated(garbage), ""), "v1beta1")["spec"].(framework.Document)
		for _, field := range []string{"scaleStrategy", "future"} {
			if got[field] != nil {
				t.Errorf("the annotation %s became %s in the spec: %v", garbage, field, got)
			}
		}
	}
}

// OPS-112, ASTS-322 (part): fields of a newer release inside of those that only v1beta1 has are in the
// annotation too, where the API server does not prune them, and return.
func TestFieldsOfANewerReleaseInTheAnnotation(t *testing.T) {
	beta := webhooktest.StatefulSet("v1beta1", "", `"ordinals":{"start":1,"step":2},"scaleStrategy":{"burst":12345678901234567890},"future":true`)
	alpha := convertOne(t, beta, "v1alpha1")
	spec, meta := alpha["spec"].(framework.Document), alpha["metadata"].(framework.Document)
	text, _ := meta["annotations"].(framework.Document)[pub.V1beta1OnlyFields].(string)
	want := `{"ordinals":{"start":1,"step":2},"scaleStrategy":{"burst":12345678901234567890}}`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("annotation in v1alpha1 (-want +got):\n%s", diff)
	}
	for _, field := range []string{"ordinals", "scaleStrategy"} {
		if spec[field] != nil {
			t.Errorf("the spec in v1alpha1 has %s: %v", field, spec)
		}
	}
	if spec["future"] != true {
		t.Errorf("the unknown field has gone: %v", spec)
	}
	back := convertOne(t, webhooktest.Encoded(t, alpha), "v1beta1")
	given, err := framework.DecodeDocument([]byte(beta))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(given["spec"], back["spec"]); diff != "" {
		t.Errorf("spec after conversion there and back (-want +got):\n%s", diff)
	}
	for _, garbage := range []string{"no", "[]", `{"ordinals":5,"future":1}`} {
		got := convertOne(t, webhooktest.StatefulSet("v1alpha1", webhooktest.Annotated(garbage), ""), "v1beta1")["spec"].(framework.Document)
		for _, field := range []string{"ordinals", "future"} {
			if got[field] != nil {
				t.Errorf("the annotation %s became %s in the spec: %v", garbage, field, got)
			}
		}
	}
}

// OPS-072, OPS-112: an unknown field in spec.updateStrategy of another kind than CloneSet keeps its place in
// both versions, although it moves in a CloneSet.
func TestAFieldOfANewerReleaseStaysInTheUpdateStrategyOfASidecarSet(t *testing.T) {
	const members = `"kind":"SidecarSet","metadata":{"name":"s"},"spec":{"containers":[{"name":"a","image":"i"}],"updateStrategy":{"type":"RollingUpdate","future":{"x":1}}}}`
	for from, to := range map[string]string{"v1alpha1": "v1beta1", "v1beta1": "v1alpha1"} {
		there := convertOne(t, `{"apiVersion":"apps.kruise.io/`+from+`",`+members, to)
		if !has(there, "spec.updateStrategy.future.x") {
			t.Errorf("from %s: the field of a newer release has gone: %v", from, there["spec"])
		}
		if has(there, "spec.updateStrategy.rollingUpdate") {
			t.Errorf("from %s: got a rollingUpdate that nobody gave: %v", from, there["spec"])
		}
		given := `{"apiVersion":"apps.kruise.io/` + from + `",` + members
		response := sidecarsetcontroller.SidecarSets(accepting(t)).Mutate(t.Context(), admission.Request{
			AdmissionRequest: admissionapi.AdmissionRequest{Operation: admissionapi.Create, Name: "a",
				Kind:   metav1.GroupVersionKind{Group: "apps.kruise.io", Version: from, Kind: "SidecarSet"},
				Object: runtime.RawExtension{Raw: []byte(given)}}})
		text, err := json.Marshal(response.Patches)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatchapply.DecodePatch(text)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := patch.Apply([]byte(given))
		if err != nil {
			t.Fatal(err)
		}
		after, err := framework.DecodeDocument(stored)
		if err != nil {
			t.Fatal(err)
		}
		if !has(after, "spec.updateStrategy.future.x") {
			t.Errorf("%s written: the field of a newer release has gone: %s", from, text)
		}
		if has(after, "spec.updateStrategy.rollingUpdate") {
			t.Errorf("%s written: got a rollingUpdate that nobody gave: %s", from, text)
		}
	}
}
