package admission

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/pods/workloadspread"
)

func workloadSpreads(t *testing.T, server *apiServer) *workloadSpreadWebhook {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &workloadSpreadWebhook{on: true, judge: server.judge(t), cached: fake.NewClientBuilder().WithScheme(scheme).Build(), listed: &workloadspread.Listed{}, window: workloadspread.UnschedulableWindow}
}

func spreadOf(metadata, spec string) string {
	return `{"apiVersion":"apps.kruise.io/v1beta1","kind":"WorkloadSpread","metadata":{"name":"web","namespace":"shop"` + metadata + `},"spec":` + spec + `}`
}

// picky is an API server that refuses tolerations with operator Maybe, and says so for each of them.
func picky(template document) (int, any) {
	spec := template["spec"].(document)
	list, _ := spec["tolerations"].([]any)
	for _, item := range list {
		if item.(document)["operator"] == "Maybe" {
			return answers(422, metav1.StatusReasonInvalid, "bad", metav1.StatusCause{Type: "FieldValueInvalid", Field: "template.spec.tolerations[0].operator", Message: "Maybe"})(template)
		}
	}
	return accepts(template)
}

// WS-044: what was accepted once, and would be refused today, stands in the way of nothing else.
func TestWorkloadSpreadsAreNotRefusedForWhatWasWrongBefore(t *testing.T) {
	const subset = `{"name":"a","maxReplicas":1,"tolerations":[{"key":"k","operator":"Maybe"}]}`
	const ref = `"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}`
	for name, test := range map[string]struct {
		old, updated string
		refused      []string
	}{
		"a label":                                {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`), spreadOf(`,"labels":{"a":"b"}`, `{`+ref+`,"subsets":[`+subset+`]}`), nil},
		"a label on one that could not be worse": {spreadOf("", `{"subsets":[],"scheduleStrategy":{"type":"Never"}}`), spreadOf(`,"labels":{"a":"b"}`, `{"subsets":[],"scheduleStrategy":{"type":"Never"}}`), nil},
		"another quota":                          {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`), spreadOf("", `{`+ref+`,"subsets":[`+strings.Replace(subset, ":1,", ":2,", 1)+`]}`), nil},
		"a subset before":                        {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`), spreadOf("", `{`+ref+`,"subsets":[{"name":"b"},`+subset+`]}`), nil},
		"a new error":                            {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`), spreadOf("", `{`+ref+`,"subsets":[`+subset+`,{"name":"a"}]}`), []string{"spec.subsets[1].name"}},
		"new errors of both":                     {spreadOf("", `{`+ref+`,"subsets":[{"name":"a"}]}`), spreadOf("", `{`+ref+`,"subsets":[`+subset+`,{"name":"a"}],"scheduleStrategy":{"type":"Never"}}`), []string{"spec.subsets[1].name", "spec.scheduleStrategy.type", "spec.subsets[0].tolerations[0].operator"}},
		"another target":                         {spreadOf("", `{`+ref+`,"subsets":[`+subset+`]}`), spreadOf("", `{`+strings.Replace(ref, `"d"`, `"e"`, 1)+`,"subsets":[`+subset+`]}`), []string{"spec.targetRef"}},
		"mended, unreadable before":              {spreadOf("", `{`+ref+`,"subsets":"none"}`), spreadOf("", `{`+ref+`,"subsets":[{"name":"a"}]}`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			response := review(t, inTime(workloadSpreads(t, &apiServer{answer: picky}).validate), admissionv1.Update, test.updated, test.old)
			if diff := cmp.Diff(test.refused, fields(response)); diff != "" || response.Allowed != (test.refused == nil) {
				t.Errorf("%+v\n%s", response.Result, diff)
			}
		})
	}
}

// WorkloadSpreads are judged a few at a time: merging their patches takes time that belongs to those who create pods. Who does not have a turn in time is
// told to come again, and nobody else is held up.
func TestWorkloadSpreadsAreJudgedInTurns(t *testing.T) {
	const spec = `{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"subsets":[{"name":"a"}]}`
	w := workloadSpreads(t, &apiServer{answer: accepts})
	w.turns = make(chan struct{}, 1)
	w.turns <- struct{}{} // somebody is being judged
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // its time is over
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: "shop",
		Object: runtime.RawExtension{Raw: []byte(spreadOf("", spec))}}}
	if got := w.validate(ctx, request); got.Allowed || got.Result.Code != http.StatusTooManyRequests {
		t.Errorf("%+v", got.Result)
	}
	<-w.turns
	for range 3 {
		if got := review(t, inTime(w.validate), admissionv1.Create, spreadOf("", spec), ""); !got.Allowed {
			t.Errorf("%+v", got.Result)
		}
	}
}
