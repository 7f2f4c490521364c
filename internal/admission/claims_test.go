package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	persistentpodstatecontroller "github.com/afloat-project/afloat/internal/kinds/persistentpodstate/controller"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
	"github.com/afloat-project/afloat/internal/racetest"
)

// open is a manager whose port anybody reaches: its handlers, and what they announce. There are namespaces
// shop and, not in the cache yet, new.
func open(t *testing.T) (map[string]admission.Handler, *announcements, *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1beta1.AddToScheme, policyv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	namespace := func(name string) client.Object { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	looks := 0
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(namespace("shop")).Build()
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(namespace("shop"), namespace("new")).WithInterceptorFuncs(
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			looks++
			return c.Get(ctx, key, o, options...)
		}}).Build()
	by := &announcements{}
	e := &framework.Environment{Gates: webhooktest.Gates(t, "ResourceDistributionGate=true")}
	e.Namespace, e.Writer = "shop", fake.NewClientBuilder().WithScheme(scheme).Build()
	workloadspreadcontroller.Listing.Set(e, &workloadspreadcontroller.Listed{})
	persistentpodstatecontroller.Listing.Set(e, &workloadspreadcontroller.Listed{})
	e.Mapper = meta.NewDefaultRESTMapper(nil)
	e.Cache, e.APIReader, e.Namespaces, e.Announcer, e.Validator = cached, live, framework.NewNamespaces(cached, live), by, (&webhooktest.APIServer{Answer: webhooktest.Accepts}).Validator(t)
	options := ofRegistry(t, "ResourceDistributionGate=true")
	e.Protect = options.protects
	return options.handlers(e, podsIf(true, false), nil), by, &looks
}

// post sends the text of a review to the handler of WorkloadSpreads, as anybody can.
func post(t *testing.T, handlers map[string]admission.Handler, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	recorder := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, spreadPath, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	(&admission.Webhook{Handler: handlers[spreadPath]}).ServeHTTP(recorder, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatalf("reading the answer %s: %v", recorder.Body, err)
	}
	if answer.Response == nil {
		t.Fatalf("the answer has no response: %s", recorder.Body)
	}
	return answer.Response
}

// forged is a review of the creation of a WorkloadSpread.
func forged(t *testing.T, namespace, name string) string {
	t.Helper()
	quoted := func(text string) string {
		encoded := &bytes.Buffer{}
		encoder := json.NewEncoder(encoded)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(text); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(encoded.String())
	}
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","namespace":%s,"name":%s,
		"kind":{"group":"apps.kruise.io","version":"v1beta1","kind":"WorkloadSpread"},
		"resource":{"group":"apps.kruise.io","version":"v1beta1","resource":"workloadspreads"},
		"object":{"apiVersion":"apps.kruise.io/v1beta1","kind":"WorkloadSpread","metadata":{"name":"x"},
		"spec":{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"},"subsets":[{"name":"s"}]}}}}`,
		quoted(namespace), quoted(name))
}

const spreadPath = "/validate-apps-kruise-io-workloadspread"

// One request from any pod, without credentials, wrote an expression into the configuration of the webhooks
// that API servers could not evaluate: for half a minute no pod could be created in any namespace.
func TestNobodyWritesExpressionsByTheNamespaceOfAReview(t *testing.T) {
	handlers, by, _ := open(t)
	const namespace = "a'])) || int(request.operation) == 1 || ((request.namespace in ['a"
	if answer := post(t, handlers, forged(t, namespace, "x")); answer.Allowed {
		t.Error("a namespace that is an expression is admitted")
	} else if answer.Result.Code != http.StatusBadRequest {
		t.Errorf("a namespace that is an expression: refused with %+v, want code 400", answer.Result)
	}
	if len(by.expressions) > 0 {
		t.Errorf("announced: %q", by.expressions)
	}
	if text := matchconditions.Within([]string{namespace}); text != "false" {
		t.Errorf("requests in what is no namespace: %s", text)
	}
}

// Rules are announced in namespaces that exist, also in one that is too new for the cache. Who makes up
// others cannot cause a request for each.
func TestRulesAreAnnouncedInNamespacesThatExist(t *testing.T) {
	handlers, by, looks := open(t)
	for _, namespace := range []string{"shop", "new"} {
		if answer := post(t, handlers, forged(t, namespace, "x")); !answer.Allowed {
			t.Errorf("admission in namespace %s: %+v", namespace, answer.Result)
		} else if len(answer.Warnings) > 0 {
			t.Errorf("admission in namespace %s: got warnings %q, want none", namespace, answer.Warnings)
		}
	}
	if len(by.expressions) != 2 || !strings.Contains(by.expressions[1], "'new'") {
		t.Errorf("announced: got %q, want 2, the second for namespace new", by.expressions)
	}
	if *looks != 1 {
		t.Errorf("namespaces looked up: got %d, want 1", *looks)
	}
	begin := time.Now()
	for i := range 500 {
		if answer := post(t, handlers, forged(t, fmt.Sprintf("nowhere-%d", i), "x")); !answer.Allowed {
			t.Fatalf("admission in namespace nowhere-%d: %+v", i, answer.Result)
		} else if len(answer.Warnings) != 1 {
			t.Fatalf("admission in namespace nowhere-%d: got warnings %q, want one", i, answer.Warnings)
		}
	}
	if len(by.expressions) != 2 {
		t.Errorf("announced: got %d, want 2", len(by.expressions))
	}
	// Fifty at once, and ten a second, for as long as this took.
	if most := 51 + int(10*time.Since(begin).Seconds()); *looks > most {
		t.Errorf("namespaces looked up: got %d, want %d at most", *looks, most)
	}
}

// OPS-068: what a review claims is checked for every webhook before it looks at it.
func TestClaimsOfReviewsAreChecked(t *testing.T) {
	racetest.SkipAlone(t)
	handlers, by, _ := open(t)
	for path, of := range (Options{Kinds: Registered}).subjects() {
		if handlers[path] == nil {
			continue
		}
		namespace := "shop"
		if of.cluster {
			namespace = ""
		}
		good := func() *admissionv1.AdmissionRequest {
			r := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Delete, Namespace: namespace, Name: "web",
				Kind:      metav1.GroupVersionKind{Group: of.group, Version: "v1beta1", Kind: of.kind},
				Resource:  metav1.GroupVersionResource{Group: of.group, Version: "v1beta1", Resource: of.resource},
				OldObject: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"web"}}`)}}
			return r
		}
		if answer := handlers[path].Handle(t.Context(), admission.Request{AdmissionRequest: *good()}); !answer.Allowed {
			t.Errorf("admission by %s: %+v", path, answer.Result)
		}
		for name, spoil := range map[string]func(*admissionv1.AdmissionRequest){
			"another group":            func(r *admissionv1.AdmissionRequest) { r.Resource.Group = "other" },
			"another resource":         func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "secrets" },
			"another kind":             func(r *admissionv1.AdmissionRequest) { r.Kind.Kind = "Secret" },
			"another kind's group":     func(r *admissionv1.AdmissionRequest) { r.Kind.Group = "other" },
			"no resource":              func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "" },
			"a name with a quote":      func(r *admissionv1.AdmissionRequest) { r.Name = "a'b" },
			"a name that leads up":     func(r *admissionv1.AdmissionRequest) { r.Name = "../x" },
			"an endless name":          func(r *admissionv1.AdmissionRequest) { r.Name = strings.Repeat("a", 1<<20) },
			"a namespace with a quote": func(r *admissionv1.AdmissionRequest) { r.Namespace = "a'b" },
			"the wrong scope": func(r *admissionv1.AdmissionRequest) {
				if r.Namespace = ""; of.cluster {
					r.Namespace = "shop"
				}
			},
			"an object elsewhere": func(r *admissionv1.AdmissionRequest) {
				r.OldObject.Raw = []byte(`{"metadata":{"name":"web","namespace":"elsewhere"}}`)
			},
			"an object whose name leads up":    func(r *admissionv1.AdmissionRequest) { r.OldObject.Raw = []byte(`{"metadata":{"name":"../x"}}`) },
			"an object with a generated quote": func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`{"metadata":{"generateName":"a'b-"}}`) },
			"an object with two names": func(r *admissionv1.AdmissionRequest) {
				r.OldObject.Raw = []byte(`{"metadata":{"name":"web","Name":"../x"}}`)
			},
			"an object with one name twice": func(r *admissionv1.AdmissionRequest) {
				r.OldObject.Raw = []byte(`{"metadata":{"name":"../x","name":"web"}}`)
			},
			"an object with two metadata": func(r *admissionv1.AdmissionRequest) {
				r.OldObject.Raw = []byte(`{"metadata":{"name":"web"},"METADATA":{"name":"../x"}}`)
			},
			"an object that is a list": func(r *admissionv1.AdmissionRequest) { r.Object.Raw = []byte(`[]`) },
		} {
			request := good()
			spoil(request)
			answer := handlers[path].Handle(t.Context(), admission.Request{AdmissionRequest: *request})
			if answer.Allowed {
				t.Errorf("%s, %s: admitted", path, name)
			} else if code := answer.Result.Code; code != http.StatusBadRequest &&
				code != http.StatusUnprocessableEntity {
				t.Errorf("%s, %s: refused by %d, want 400 or 422: %.3000v", path, name, code, answer.Result)
			}
			if n := len(answer.Result.Message); n > 2000 {
				t.Errorf("%s, %s: a message of %d characters, want 2000 at most", path, name, n)
			}
		}
	}
	if len(by.expressions) > 0 {
		t.Errorf("announced: %q", by.expressions)
	}
}

// A name that the API server would refuse is refused in its words, with the field.
func TestABadNameIsTold(t *testing.T) {
	handlers, _, _ := open(t)
	answer := post(t, handlers, strings.Replace(forged(t, "shop", ""), `{"name":"x"},`, `{"generateName":"My_"},`, 1))
	if diff := cmp.Diff([]string{"metadata.generateName"}, webhooktest.Fields(answer)); diff != "" {
		t.Errorf("refused fields (-want +got):\n%s", diff)
	}
	if answer.Allowed {
		t.Error("a bad name is admitted")
	}
	if answer.Result.Code != http.StatusUnprocessableEntity {
		t.Errorf("a bad name: refused by %d, want 422", answer.Result.Code)
	}
	if message := answer.Result.Message; !strings.Contains(message, "RFC 1123") {
		t.Errorf("message for a bad name: got %q, want RFC 1123 in it", message)
	}
}

// What the manager writes into entries passes the check that is made before it is written.
func TestConditionsThatAreWrittenPassTheCheck(t *testing.T) {
	checker, err := matchconditions.NewChecker()
	if err != nil {
		t.Fatal(err)
	}
	expressions := []string{inSubset, inService, protected, asked(true, true), asked(true, false), asked(false, true),
		matchconditions.Within([]string{"a", "b"}), "!(" + strings.Join([]string{"request.namespace in ['a']", inService, protected}, " && ") + ")"}
	for _, condition := range slices.Concat(otherPods(true, ofRegistry(t, "EnhancedLivenessProbe=true").asksForProbes()),
		otherPods(true, condition("a", "true"), condition("b", "request.namespace in ['a']"), condition("c", "true"), condition("d", "true"))) {
		expressions = append(expressions, condition.Expression)
	}
	for _, expression := range expressions {
		if err := checker.Check(expression); err != nil {
			t.Errorf("checking the expression %s: %v", expression, err)
		}
	}
}
