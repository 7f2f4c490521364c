// Package webhooktest is what tests of webhooks share: reviews as an API server sends them, and an API server that
// answers dry runs of pod templates.
package webhooktest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// APIServer answers dry runs of pod templates with answer, and keeps the last body.
type APIServer struct {
	Answer func(template framework.Document) (code int, body any)
	asking sync.Mutex
	Asked  []framework.Document
	Query  string
}

// Validator returns a validator that asks this server.
func (s *APIServer) Validator(t *testing.T) framework.TemplateValidator {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("reading the request: %v", err)
		}
		doc, err := framework.DecodeDocument(body)
		if err != nil || r.URL.Path != "/api/v1/namespaces/shop/podtemplates" {
			t.Errorf("asked at %s for %s, want a PodTemplate in namespace shop: %v", r.URL, body, err)
		}
		s.asking.Lock()
		s.Query = r.URL.RawQuery
		s.Asked = append(s.Asked, doc)
		s.asking.Unlock()
		code, answer := s.Answer(doc["template"].(framework.Document))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Errorf("writing the answer: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	clientset, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return framework.NewTemplateValidator(clientset.CoreV1().RESTClient())
}

// Accepts answers like a server that accepts the template.
func Accepts(template framework.Document) (int, any) {
	return 201, framework.Document{"kind": "PodTemplate", "template": template}
}

// Answers returns an answer of a server that refuses.
func Answers(code int, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) func(framework.Document) (int, any) {
	return func(framework.Document) (int, any) {
		return code, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code),
			Reason: reason, Message: message,
			Details: &metav1.StatusDetails{Causes: causes}}
	}
}

// GoodTemplate is a pod template with a field of a newer release.
const GoodTemplate = `{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a","image":"i","future":12345678901234567890}]}}`

// Review sends an admission review through the handler as the API server does, and returns its response.
func Review(t *testing.T, handler admission.Handler, operation admissionv1.Operation, updated, old string) *admissionv1.AdmissionResponse {
	t.Helper()
	request := &admissionv1.AdmissionRequest{UID: "uid", Operation: operation, Namespace: "shop", Name: "web",
		Kind: metav1.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "CloneSet"}}
	if updated != "" {
		request.Object.Raw = []byte(updated)
	}
	if old != "" {
		request.OldObject.Raw = []byte(old)
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview",
		APIVersion: "admission.k8s.io/v1"}, Request: request})
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	(&admission.Webhook{Handler: handler}).ServeHTTP(recorder, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		t.Fatalf("the answer %s has no response: %v", recorder.Body, err)
	}
	return answer.Response
}

// Fields returns the fields that a response refuses.
func Fields(r *admissionv1.AdmissionResponse) []string {
	var list []string
	if r.Result != nil && r.Result.Details != nil {
		for _, cause := range r.Result.Details.Causes {
			list = append(list, cause.Field)
		}
	}
	return list
}

// Encoded returns a value as JSON.
func Encoded(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Annotated is the annotation that holds fields of v1beta1.
func Annotated(fields string) string {
	text, _ := json.Marshal(fields)
	return `"annotations":{"` + pub.V1beta1OnlyFields + `":` + string(text) + `}`
}

// Gates returns the gates of a list.
func Gates(t *testing.T, list string) *features.Gates {
	t.Helper()
	parsed, err := features.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// Handler is the handler of a webhook of a kind without gates.
func Handler(handle admission.HandlerFunc) admission.Handler {
	kind := framework.Kind{Webhooks: func(*framework.Environment) framework.Webhooks { return framework.Webhooks{Mutate: handle} }}
	return kind.Handlers(&framework.Environment{})[kind.Path("mutate")]
}

// Handlers returns the handlers of a kind by path, with these webhooks and the gates of a list.
func Handlers(t *testing.T, kind framework.Kind, list string, webhooks framework.Webhooks) map[string]admission.Handler {
	t.Helper()
	kind.Webhooks = func(*framework.Environment) framework.Webhooks { return webhooks }
	return kind.Handlers(&framework.Environment{Gates: Gates(t, list)})
}

// CloneSet returns a CloneSet of a version as JSON, with more members of its spec.
func CloneSet(version, template, more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"CloneSet","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"shop"}},"template":` + template + more + `}}`
}

// Object returns an object of a kind as JSON, with more members of its metadata.
func Object(version, kind, metadata, spec string) string {
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"` + kind + `","metadata":{"name":"x"` + metadata + `},"spec":` + spec +
		`}`
}

// Environment returns what webhooks need, with default gates, a validator that asks the server, and the objects in
// the cache and in the API server.
func Environment(t *testing.T, server *APIServer, objects ...client.Object) *framework.Environment {
	t.Helper()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, appsv1beta1.AddToScheme, policyv1beta1.AddToScheme,
	} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	reader := fake.NewClientBuilder().WithScheme(known).WithObjects(objects...).Build()
	return &framework.Environment{
		Gates: Gates(t, ""), Validator: server.Validator(t), Cache: reader, APIReader: reader, Namespace: "shop", Minor: 36,
	}
}

// StatefulSet returns a StatefulSet of a version as JSON, with more members of its metadata and its spec.
func StatefulSet(version, meta, spec string) string {
	for _, more := range []*string{&meta, &spec} {
		if *more != "" {
			*more = "," + *more
		}
	}
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"StatefulSet","metadata":{"name":"web","namespace":"shop"` + meta +
		`},"spec":{"replicas":1,"podManagementPolicy":"OrderedReady","revisionHistoryLimit":10,"selector":{"matchLabels":{"app":"shop"}},"template":` + GoodTemplate +
		`,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0,"maxUnavailable":1,"podUpdatePolicy":"ReCreate","minReadySeconds":0}}` + spec + `}}`
}

// DaemonSet returns a DaemonSet of a version as JSON, with more members of its metadata and its spec.
func DaemonSet(version, meta, spec string) string {
	for _, more := range []*string{&meta, &spec} {
		if *more != "" {
			*more = "," + *more
		}
	}
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"DaemonSet","metadata":{"name":"agent","namespace":"shop"` + meta +
		`},"spec":{"burstReplicas":250,"revisionHistoryLimit":10,"selector":{"matchLabels":{"app":"shop"}},"template":` + GoodTemplate +
		`,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"rollingUpdateType":"Standard","maxUnavailable":1,"maxSurge":0}}` + spec + `}}`
}
