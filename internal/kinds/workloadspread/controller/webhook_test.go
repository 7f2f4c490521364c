package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

func workloadSpreads(t *testing.T, server *webhooktest.APIServer) *workloadSpreadWebhook {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &workloadSpreadWebhook{judge: server.Validator(t), cached: fake.NewClientBuilder().WithScheme(scheme).Build(),
		listed: &Listed{}, window: workloadspread.UnschedulableWindow}
}

func spreadOf(metadata, spec string) string {
	return `{"apiVersion":"apps.kruise.io/v1beta1","kind":"WorkloadSpread","metadata":{"name":"web","namespace":"shop"` + metadata +
		`},"spec":` + spec + `}`
}

// picky is an API server that refuses tolerations with operator Maybe, with a cause for each of them.
func picky(template framework.Document) (int, any) {
	spec := template["spec"].(framework.Document)
	list, _ := spec["tolerations"].([]any)
	for _, item := range list {
		if item.(framework.Document)["operator"] == "Maybe" {
			return webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
				metav1.StatusCause{Type: "FieldValueInvalid", Field: "template.spec.tolerations[0].operator", Message: "Maybe"})(template)
		}
	}
	return webhooktest.Accepts(template)
}

// WS-030: with the gate off nothing is created or updated, in either version, and the answer names the gate;
// objects that are being deleted may be updated.
func TestWorkloadSpreadsAreRefusedWithoutTheGate(t *testing.T) {
	good := spreadOf("", `{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"subsets":[{"name":"a"}]}`)
	for _, text := range []string{good, strings.Replace(good, "v1beta1", "v1alpha1", 1)} {
		for on, code := range map[bool]int32{true: http.StatusOK, false: http.StatusForbidden} {
			w := workloadSpreads(t, &webhooktest.APIServer{Answer: webhooktest.Accepts})
			handler := webhooktest.Handlers(t, WorkloadSpread, fmt.Sprintf("WorkloadSpread=%t", on),
				framework.Webhooks{Validate: w.validate})["/validate-apps-kruise-io-workloadspread"]
			for operation, old := range map[admissionv1.Operation]string{admissionv1.Create: "",
				admissionv1.Update: strings.Replace(good, `"a"`, `"b"`, 1)} {
				response := webhooktest.Review(t, handler, operation, text, old)
				if response.Allowed != on {
					t.Errorf("gate %t, %s: allowed %t: %+v", on, operation, response.Allowed, response.Result)
				}
				if response.Result.Code != code {
					t.Errorf("gate %t, %s: got %+v, want code %d", on, operation, response.Result, code)
				}
				if !on && !strings.Contains(response.Result.Message, "WorkloadSpread is off") {
					t.Errorf("gate %t, %s: refused with %q, want that it is off", on, operation, response.Result.Message)
				}
			}
			leaving := strings.Replace(good, `"name":"web"`, `"name":"web","deletionTimestamp":"2026-01-01T00:00:00Z"`, 1)
			if response := webhooktest.Review(t, handler, admissionv1.Update, text, leaving); !response.Allowed {
				t.Errorf("gate %t, one that is deleted: %+v", on, response)
			}
		}
	}
}

// WS-046: the template judged is that of the target, by its group and kind, with the patch, for all kinds
// that have one; workloads of the same name and of another group or kind do not count. The API server
// completes and judges it, and its faults are reported below the patch.
func TestPatchesAreJudgedOnTheTemplateOfTheTarget(t *testing.T) {
	kinds := []schema.GroupVersionKind{{Group: "batch", Version: "v1", Kind: "Job"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
		{Group: "apps.kruise.io", Version: "v1beta1", Kind: "CloneSet"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: "apps.kruise.io", Version: "v1beta1", Kind: "StatefulSet"}}
	scheme, mapper := runtime.NewScheme(),
		meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: "batch", Version: "v1"}, {Group: "apps", Version: "v1"},
			{Group: "apps.kruise.io", Version: "v1beta1"}})
	var workloads []client.Object
	for _, kind := range kinds {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		mapper.Add(kind, meta.RESTScopeNamespace)
		workload := &unstructured.Unstructured{Object: framework.Document{"metadata": framework.Document{"name": "web", "namespace": "shop"}, "spec": framework.Document{
			"template": framework.Document{"spec": framework.Document{"containers": []any{framework.Document{"name": "main", "image": kind.Group + "/" + kind.Kind}}}}}}}
		workload.SetGroupVersionKind(kind)
		workloads = append(workloads, workload)
	}
	for i, kind := range kinds {
		for _, exists := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s of %s, it exists: %t", kind.Kind, kind.Group, exists), func(t *testing.T) {
				there := slices.Clone(workloads)
				if !exists {
					there = slices.Delete(there, i, i+1)
				}
				server := &webhooktest.APIServer{Answer: func(template framework.Document) (int, any) {
					for _, item := range template["spec"].(framework.Document)["containers"].([]any) {
						if container := item.(framework.Document); container["image"] == "bad" {
							return webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
								metav1.StatusCause{Type: "FieldValueInvalid", Field: "template.spec.containers[0].image", Message: "bad"})(
								template)
						}
					}
					return webhooktest.Accepts(template)
				}}
				w := workloadSpreads(t, server)
				w.mapper, w.live = mapper,
					typeless{fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(there...).Build()}
				ask := func(patch string) *admissionv1.AdmissionResponse {
					server.Asked = nil
					return webhooktest.Review(t, webhooktest.Handler(w.validate), admissionv1.Create,
						spreadOf("", `{"targetRef":{"apiVersion":"`+kind.GroupVersion().String()+`","kind":"`+kind.Kind+`","name":"web"},
						"subsets":[{"name":"a"},{"name":"b","patch":`+patch+`}]}`), "")
				}
				response := ask(`{"metadata":{"labels":{"zone":"b"}}}`)
				var judged []string
				for _, asked := range server.Asked {
					template := asked["template"].(framework.Document)
					labels, _ := template["metadata"].(framework.Document)["labels"].(framework.Document)
					judged = append(judged, fmt.Sprint(template["spec"].(framework.Document)["containers"].([]any)[0].(framework.Document)["image"], " ",
						labels["zone"]))
				}
				var want []string
				if exists {
					want = []string{kind.Group + "/" + kind.Kind + " b"}
				}
				if diff := cmp.Diff(want, judged); diff != "" {
					t.Errorf("templates that were judged (-want +got):\n%s", diff)
				}
				if !response.Allowed {
					t.Errorf("a good patch: %+v", response.Result)
				}
				response = ask(`{"spec":{"containers":[{"name":"main","image":"bad"}]}}`)
				want = nil
				if exists {
					want = []string{"spec.subsets[1].patch.spec.containers[0].image"}
				}
				if diff := cmp.Diff(want, webhooktest.Fields(response)); diff != "" {
					t.Errorf("refused fields of a bad patch (-want +got):\n%s", diff)
				}
				if response.Allowed == exists {
					t.Errorf("a bad patch: allowed %t, want %t: %+v", response.Allowed, !exists, response.Result)
				}
			})
		}
	}
}

// typeless reads objects without type metadata, as a client does for typed objects.
type typeless struct{ client.Reader }

func (r typeless) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, o, options...)
	if u, ok := o.(*unstructured.Unstructured); ok && err == nil {
		delete(u.Object, "kind")
		delete(u.Object, "apiVersion")
	}
	return err
}

// WS-044: faults that were accepted once do not prevent other changes.
func TestWorkloadSpreadsAreNotRefusedForWhatWasWrongBefore(t *testing.T) {
	const subset = `{"name":"a","maxReplicas":1,"tolerations":[{"key":"k","operator":"Maybe"}]}`
	const ref = `"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}`
	many := subset
	for i := range 250 {
		many += fmt.Sprintf(`,{"name":"s%d"}`, i)
	}
	for name, test := range map[string]struct {
		old, updated string
		refused      []string
	}{
		"a label": {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`),
			spreadOf(`,"labels":{"a":"b"}`, `{`+ref+`,"subsets":[`+subset+`]}`), nil},
		"a label on one that could not be worse": {spreadOf("", `{"subsets":[],"scheduleStrategy":{"type":"Never"}}`),
			spreadOf(`,"labels":{"a":"b"}`, `{"subsets":[],"scheduleStrategy":{"type":"Never"}}`), nil},
		"another quota": {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`),
			spreadOf("", `{`+ref+`,"subsets":[`+strings.Replace(subset, ":1,", ":2,", 1)+`]}`), nil},
		"a subset before": {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`),
			spreadOf("", `{`+ref+`,"subsets":[{"name":"b"},`+subset+`]}`), nil},
		"a new error": {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`),
			spreadOf("", `{`+ref+`,"subsets":[`+subset+`,{"name":"a"}]}`), []string{"spec.subsets[1].name"}},
		"new errors of both": {spreadOf("", `{`+ref+`,"subsets":[{"name":"a"}]}`),
			spreadOf("", `{`+ref+`,"subsets":[`+subset+`,{"name":"a"}],"scheduleStrategy":{"type":"Never"}}`),
			[]string{"spec.subsets[1].name", "spec.scheduleStrategy.type", "spec.subsets[0].tolerations[0].operator"}},
		"another target": {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`),
			spreadOf("", `{`+strings.Replace(ref, `"d"`, `"e"`, 1)+`,"subsets":[`+subset+`]}`), []string{"spec.targetRef"}},
		"another quota of one of many subsets": {spreadOf("", `{`+ref+`,"subsets":[`+many+`]}`),
			spreadOf("", `{`+ref+`,"subsets":[`+strings.Replace(many, ":1,", ":2,", 1)+`]}`), nil},
		"fewer of many subsets": {spreadOf("", `{`+ref+`,"subsets":[`+many+`]}`),
			spreadOf("", `{`+ref+`,"subsets":[`+strings.TrimSuffix(many, `,{"name":"s249"}`)+`]}`), nil},
		"more of many subsets": {spreadOf("", `{`+ref+`,"subsets":[`+many+`]}`),
			spreadOf("", `{`+ref+`,"subsets":[`+many+`,{"name":"b"}]}`), []string{"spec.subsets"}},
		"mended, unreadable before": {spreadOf("", `{`+ref+`,"subsets":"none"}`),
			spreadOf("", `{`+ref+`,"subsets":[{"name":"a"}]}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			response := webhooktest.Review(t, webhooktest.Handler(workloadSpreads(t, &webhooktest.APIServer{Answer: picky}).validate), admissionv1.Update, test.updated,
				test.old)
			if diff := cmp.Diff(test.refused, webhooktest.Fields(response)); diff != "" {
				t.Errorf("refused fields (-want +got):\n%s", diff)
			}
			if want := test.refused == nil; response.Allowed != want {
				t.Errorf("allowed %t, want %t: %+v", response.Allowed, want, response.Result)
			}
		})
	}
}

// WorkloadSpreads are judged a few at a time, so that merging their patches does not slow down the creation
// of pods. A request that gets no turn in time is refused with 429; those of other namespaces are not
// delayed.
func TestWorkloadSpreadsAreJudgedInTurns(t *testing.T) {
	const spec = `{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"subsets":[{"name":"a"}]}`
	w := workloadSpreads(t, &webhooktest.APIServer{Answer: webhooktest.Accepts})
	w.Turns = framework.NewTurns()
	var ends []func()
	for range framework.TurnsOfNamespace { // others are being judged
		over, _ := w.Wait(t.Context(), "shop")
		ends = append(ends, over)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the request's time is over
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: "shop",
		Object: runtime.RawExtension{Raw: []byte(spreadOf("", spec))}}}
	if got := w.validate(ctx, request); got.Allowed {
		t.Error("a request whose time is over is admitted")
	} else if got.Result.Code != http.StatusTooManyRequests {
		t.Errorf("a request whose time is over: refused with %+v, want code 429", got.Result)
	}
	if over, came := w.Wait(t.Context(), "elsewhere"); !came {
		t.Error("one namespace keeps another waiting")
	} else {
		over()
	}
	for _, over := range ends {
		over()
	}
	for i := range framework.TurnsAtOnce {
		over, came := w.Wait(t.Context(), fmt.Sprintf("namespace-%d", i))
		if !came {
			t.Fatalf("namespace-%d has no turn", i)
		}
		defer over()
	}
	if _, came := w.Wait(ctx, "one-more"); came {
		t.Error("there is no bound")
	}
	w.Turns = framework.NewTurns()
	for range 3 {
		if got := webhooktest.Review(t, webhooktest.Handler(w.validate), admissionv1.Create, spreadOf("", spec), ""); !got.Allowed {
			t.Errorf("one after another: %+v", got.Result)
		}
	}
}
