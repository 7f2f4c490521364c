package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

func webhooks(t *testing.T, server *webhooktest.APIServer) *cloneSetWebhooks {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &cloneSetWebhooks{Templates: framework.Templates{Validator: server.Validator(t), Complete: true},
		pods: fake.NewClientBuilder().WithScheme(scheme).Build()}
}

// A refusal looks like the API server's own: 422, reason Invalid, with all errors, no matter which part found
// them.
func TestRefusalNamesAllErrors(t *testing.T) {
	server := &webhooktest.APIServer{Answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "PodTemplate is invalid",
		metav1.StatusCause{Type: "FieldValueRequired", Field: "template.spec.containers[0].image", Message: "Required value"},
		metav1.StatusCause{Type: "FieldValueInvalid", Field: "template.spec.volumes[1].name", Message: "Invalid value: \"B_d\""})}
	template := `{"metadata":{"labels":{"app":"shop"}},"spec":{"restartPolicy":"Never","volumes":[{"name":"v"}],"containers":[{"name":"a"}]}}`
	got := webhooktest.Review(t, admission.HandlerFunc(webhooks(t, server).validate), "CREATE",
		webhooktest.CloneSet("v1alpha1", template,
			`"volumeClaimTemplates":[{"metadata":{"name":"v"}},{"metadata":{"name":"B_d"}}],"updateStrategy":{"partition":-1}`), "")
	if got.Allowed || got.UID != "uid" || got.Result.Code != 422 || got.Result.Reason != metav1.StatusReasonInvalid {
		t.Fatalf("admission: got %+v, want it refused as invalid with 422 and the UID of the request", got)
	}
	want := []string{"spec.template.spec.restartPolicy", "spec.volumeClaimTemplates[0].metadata.name", "spec.updateStrategy.partition",
		"spec.template.spec.containers[0].image", "spec.volumeClaimTemplates[1].metadata.name"}
	if diff := cmp.Diff(want, webhooktest.Fields(got)); diff != "" {
		t.Errorf("CS-022, CS-023, CS-025 (-want +got):\n%s", diff)
	}
	for _, part := range []string{`CloneSet.apps.kruise.io "web" is invalid: [`, "spec.template.spec.containers[0].image: Required value"} {
		if !strings.Contains(got.Result.Message, part) {
			t.Errorf("message lacks %q: %s", part, got.Result.Message)
		}
	}
}

// CS-022: the API server gets the document itself, with claim templates as volumes, and nothing is stored.
func TestTemplateIsJudgedAsTheDocumentItIs(t *testing.T) {
	server := &webhooktest.APIServer{Answer: webhooktest.Accepts}
	updated := webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, `"volumeClaimTemplates":[{"metadata":{"name":"data"}}]`)
	if got := webhooktest.Review(t, admission.HandlerFunc(webhooks(t, server).validate), "CREATE", updated, ""); !got.Allowed || len(got.Warnings) > 0 {
		t.Fatalf("admission: got %+v, want it allowed without warnings", got)
	}
	want, err := framework.DecodeDocument([]byte(`{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a","image":"i","future":12345678901234567890}],"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data"}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, server.Asked[0]["template"]); diff != "" || !strings.Contains(server.Query, "dryRun=All") {
		t.Errorf("query %s, template (-want +got):\n%s", server.Query, diff)
	}
}

func TestATemplateIsRefusedOnlyByAnAnswerAboutItself(t *testing.T) {
	ported := strings.Replace(webhooktest.GoodTemplate, `"image"`, `"ports":[],"image"`, 1)
	badCause := metav1.StatusCause{Type: "FieldValueInvalid", Field: "template.spec.x", Message: "m"}
	cases := map[string]struct {
		answer  func(framework.Document) (int, any)
		old     string
		allowed bool
		fields  []string
		warning string
		asked   int
	}{
		"accepted": {answer: webhooktest.Accepts, allowed: true, asked: 1},
		"document that does not decode": {answer: webhooktest.Answers(400, metav1.StatusReasonBadRequest, "json: cannot unmarshal"),
			fields: []string{"spec.template"}, asked: 1},
		"invalid without causes": {answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad"), fields: []string{"spec.template"},
			asked: 1},
		"no rights lets through": {answer: webhooktest.Answers(403, metav1.StatusReasonForbidden, "no rights"), allowed: true,
			warning: "spec.template could not be validated: no rights", asked: 1},
		"server trouble lets through": {answer: webhooktest.Answers(500, metav1.StatusReasonInternalError, "trouble"), allowed: true,
			warning: "trouble", asked: 1},
		"a policy of others denies": {answer: webhooktest.Answers(422, metav1.StatusReasonInvalid,
			`podtemplates "afloat-dry-run-x" is forbidden: ValidatingAdmissionPolicy 'owner' with binding 'owner' denied request: no owner`,
			metav1.StatusCause{Message: "no owner"}), allowed: true, warning: "ValidatingAdmissionPolicy 'owner'", asked: 1},
		"a proxy answers 400": {answer: webhooktest.Answers(400, metav1.StatusReasonBadRequest, "the server rejected our request for an unknown reason",
			metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "<html>"}), allowed: true,
			warning: "unknown reason", asked: 1},
		"a proxy answers 422": {answer: webhooktest.Answers(422, metav1.StatusReasonInvalid,
			"the server rejected our request due to an error in our request",
			metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "<html>"}), allowed: true,
			warning: "an error in our request", asked: 1},
		"a webhook of others refuses": {answer: webhooktest.Answers(400, metav1.StatusReasonBadRequest,
			`admission webhook "policy" denied the request: no templates`), allowed: true, warning: "no templates", asked: 1},
		"unchanged template on update": {answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad"),
			old: webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, `"minReadySeconds":5`), allowed: true, asked: 0},
		"changed, but wrong before too": {answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad", badCause),
			old: webhooktest.CloneSet("v1beta1", ported, ""), allowed: true, asked: 2},
		"metadata only": {answer: webhooktest.Accepts,
			old: strings.Replace(webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, ""), `"web"`, `"web","finalizers":["x"]`, 1), allowed: true, asked: 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			server := &webhooktest.APIServer{Answer: test.answer}
			operation := admissionv1.Create
			if test.old != "" {
				operation = admissionv1.Update
			}
			got := webhooktest.Review(t, admission.HandlerFunc(webhooks(t, server).validate), operation, webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, ""), test.old)
			if got.Allowed != test.allowed || len(server.Asked) != test.asked {
				t.Errorf("allowed %v, asked %d times: %+v", got.Allowed, len(server.Asked), got.Result)
			}
			if diff := cmp.Diff(test.fields, webhooktest.Fields(got)); diff != "" {
				t.Errorf("refused fields (-want +got):\n%s", diff)
			}
			if text := strings.Join(got.Warnings, "\n"); (test.warning == "") != (text == "") || !strings.Contains(text, test.warning) {
				t.Errorf("warnings: got %q, want %q", text, test.warning)
			}
		})
	}
}

// CS-022: an error that an update only moves to another index is not new; one that it adds is reported.
func TestAnErrorThatMovedIsNotNew(t *testing.T) {
	server := &webhooktest.APIServer{Answer: func(template framework.Document) (int, any) {
		var causes []metav1.StatusCause
		for i, item := range template["spec"].(framework.Document)["containers"].([]any) {
			if item.(framework.Document)["image"] == nil {
				causes = append(causes,
					metav1.StatusCause{Type: "FieldValueRequired", Field: fmt.Sprintf("template.spec.containers[%d].image", i),
						Message: "Required value"})
			}
		}
		return webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad", causes...)(template)
	}}
	containers := func(list string) string {
		return webhooktest.CloneSet("v1beta1", `{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[`+list+`]}}`, "")
	}
	for updated, want := range map[string][]string{
		`{"name":"new","image":"i"},{"name":"a"}`: nil,
		`{"name":"new"},{"name":"a"}`:             {"spec.template.spec.containers[1].image"},
	} {
		got := webhooktest.Review(t, admission.HandlerFunc(webhooks(t, server).validate), admissionv1.Update, containers(updated),
			containers(`{"name":"a"}`))
		if diff := cmp.Diff(want, webhooktest.Fields(got)); diff != "" {
			t.Errorf("refused fields of containers %s (-want +got):\n%s", updated, diff)
		}
	}
}

// OPS-066: the version is that of the object; the request's kind says v1beta1 throughout these tests.
func TestVersionOfTheObjectCounts(t *testing.T) {
	hooks := webhooks(t, &webhooktest.APIServer{Answer: webhooktest.Accepts})
	got := webhooktest.Review(t, admission.HandlerFunc(hooks.mutate), "CREATE", webhooktest.CloneSet("v1alpha1", webhooktest.GoodTemplate, ""), "")
	if !strings.Contains(string(got.Patch), `"type":"ReCreate"`) || strings.Contains(string(got.Patch), "rollingUpdate") {
		t.Errorf("patch of a v1alpha1 object: got %s, want type ReCreate and no rollingUpdate", got.Patch)
	}
	if got := webhooktest.Review(t, admission.HandlerFunc(hooks.validate), "CREATE",
		webhooktest.CloneSet("v1alpha1", webhooktest.GoodTemplate, `"updateStrategy":{"type":"InPlaceIfPossible"}`), ""); !got.Allowed {
		t.Errorf("a strategy of v1alpha1 in v1alpha1: %+v", got.Result)
	}
}

// CS-014, IPU-015: a template is completed on create and when it changes, never otherwise; without an answer
// of the API server it gets only the defaults that need none.
func TestMutateCompletesChangedTemplates(t *testing.T) {
	completes := func(template framework.Document) (int, any) {
		template["spec"].(framework.Document)["restartPolicy"] = "Always"
		return 201, framework.Document{"template": template}
	}
	const pullPolicy = `{"op":"add","path":"/spec/template/spec/containers/0/imagePullPolicy","value":"Always"}`
	const restart = `{"op":"add","path":"/spec/template/spec/restartPolicy","value":"Always"}`
	other := strings.Replace(webhooktest.GoodTemplate, `"i"`, `"j","imagePullPolicy":"Always"`, 1)
	cases := map[string]struct {
		answer   func(framework.Document) (int, any)
		old      string
		has, not []string
		warnings int
	}{
		"create": {answer: completes, has: []string{pullPolicy, restart}},
		"template changed": {answer: completes, old: webhooktest.CloneSet("v1beta1", other, ""), has: []string{pullPolicy},
			not: []string{restart}},
		"template unchanged": {answer: completes, old: webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, `"minReadySeconds":1`),
			not: []string{"template"}},
		"no answer": {answer: webhooktest.Answers(500, "", "trouble"), has: []string{pullPolicy}, not: []string{restart},
			warnings: 1},
		"invalid is told by validation": {answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad"), not: []string{restart}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			operation := admissionv1.Create
			if test.old != "" {
				operation = admissionv1.Update
			}
			got := webhooktest.Review(t, admission.HandlerFunc(webhooks(t, &webhooktest.APIServer{Answer: test.answer}).mutate), operation,
				webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, ""), test.old)
			if !got.Allowed || got.PatchType == nil || len(got.Warnings) != test.warnings {
				t.Fatalf("admission: got %+v, want it allowed with a patch and %d warnings", got, test.warnings)
			}
			for _, part := range test.has {
				if !strings.Contains(string(got.Patch), part) {
					t.Errorf("patch lacks %s: %s", part, got.Patch)
				}
			}
			for _, part := range test.not {
				if strings.Contains(string(got.Patch), part) {
					t.Errorf("patch has %s: %s", part, got.Patch)
				}
			}
		})
	}
}

// CS-014: a template that mounts a claim is completed as others are. The API server gets volumes for the
// claim templates, or it would refuse the template; they do not appear in it.
func TestATemplateThatMountsAClaimIsCompleted(t *testing.T) {
	completes := func(template framework.Document) (int, any) {
		spec := template["spec"].(framework.Document)
		volumes := spec["volumes"].([]any)
		if last := volumes[len(volumes)-1].(framework.Document); last["name"] != "data" {
			return webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
				metav1.StatusCause{Field: "template.spec.containers[0].volumeMounts[0].name"})(template)
		}
		for _, item := range volumes {
			item.(framework.Document)["future"] = "default"
		}
		spec["restartPolicy"] = "Always"
		return 201, framework.Document{"template": template}
	}
	for volumes, want := range map[string]string{"": "", `"volumes":[{"name":"v"}],`: `"/spec/template/spec/volumes/0/future"`,
		`"volumes":[{"name":"w"},{"name":"data"}],`: `"/spec/template/spec/volumes/1/future"`} {
		template := strings.Replace(webhooktest.GoodTemplate, `"containers"`, volumes+`"containers"`, 1)
		got := webhooktest.Review(t, admission.HandlerFunc(webhooks(t, &webhooktest.APIServer{Answer: completes}).mutate), "CREATE",
			webhooktest.CloneSet("v1beta1", template, `"volumeClaimTemplates":[{"metadata":{"name":"data"}}]`), "")
		patch := string(got.Patch)
		if !strings.Contains(patch, `"/spec/template/spec/restartPolicy"`) || !strings.Contains(patch, want) ||
			strings.Count(patch, "/spec/template/spec/volumes") != strings.Count(volumes, "name") {
			t.Errorf("patch for a template with %q: got %s, want %s and no other volumes", volumes, patch, want)
		}
	}
}

// CS-014: kubectl apply of a manifest that has not changed, while the dry run fails for whatever reason,
// makes no revision, so that no pod changes. This includes an API server that has become stricter since the
// template was stored.
func TestAnUnchangedApplyRollsNoPodsWhileTheDryRunFails(t *testing.T) {
	const stored = `{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a","image":"i","imagePullPolicy":"Always","terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","future":"kept"}],"restartPolicy":"Always","dnsPolicy":"ClusterFirst"}}`
	const applied = `{"metadata":{"labels":{"app":"shop"}},"spec":{"containers":[{"name":"a","image":"i"}]}}`
	for name, answer := range map[string]func(framework.Document) (int, any){
		"quota on podtemplates": webhooktest.Answers(403, metav1.StatusReasonForbidden, "exceeded quota"),
		"server trouble":        webhooktest.Answers(500, metav1.StatusReasonInternalError, "etcdserver: request timed out"),
		"timeout":               webhooktest.Answers(504, metav1.StatusReasonTimeout, "timeout"),
		"a policy":              webhooktest.Answers(422, metav1.StatusReasonInvalid, "denied", metav1.StatusCause{Message: "no owner"}),
		"a stricter server": webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
			metav1.StatusCause{Type: "FieldValueInvalid", Field: "template.spec.x", Message: "m"}),
	} {
		t.Run(name, func(t *testing.T) {
			w := webhooks(t, &webhooktest.APIServer{Answer: answer})
			given := webhooktest.CloneSet("v1beta1", applied, "")
			got := webhooktest.Review(t, webhooktest.Handler(w.mutate), admissionv1.Update, given, webhooktest.CloneSet("v1beta1", stored, ""))
			patch, err := jsonpatchapply.DecodePatch(got.Patch)
			if err != nil || !got.Allowed {
				t.Fatalf("admission by the defaults: %+v; reading the patch: %v", got, err)
			}
			after, err := patch.Apply([]byte(given))
			if err != nil {
				t.Fatal(err)
			}
			if validated := webhooktest.Review(t, webhooktest.Handler(w.validate), admissionv1.Update, string(after),
				webhooktest.CloneSet("v1beta1", stored, "")); !validated.Allowed {
				t.Errorf("admission of the completed object: %+v", validated.Result)
			}
			doc, err := framework.DecodeDocument(after)
			if err != nil {
				t.Fatal(err)
			}
			template, err := json.Marshal(doc["spec"].(framework.Document)["template"])
			if err != nil {
				t.Fatal(err)
			}
			var revisions [2][]byte
			for i, text := range [][]byte{[]byte(stored), template} {
				if revisions[i], err = revision.Data(text); err != nil {
					t.Fatal(err)
				}
			}
			if !revision.Equal(revisions[0], revisions[1]) {
				t.Errorf("a new revision: %s", template)
			}
			if refused := name == "a stricter server"; (len(got.Warnings) == 0) != refused ||
				!refused && !strings.Contains(got.Warnings[0], "keeps the defaults that are stored") {
				t.Errorf("warnings: got %q, want one about stored defaults: %t", got.Warnings, !refused)
			}
		})
	}
}

// OPS-020: --allow-privileged=false refuses new privileged containers, no matter what the API server answers,
// and accepts those that are stored.
func TestNewPrivilegedContainersAreRefusedByTheFlag(t *testing.T) {
	template := `{"metadata":{"labels":{"app":"shop"}},"spec":{"initContainers":[{"name":"i","image":"i","securityContext":{"privileged":true}}],"containers":[{"name":"a","image":"i","securityContext":{"privileged":false}}]}}`
	hooks := webhooks(t, &webhooktest.APIServer{Answer: webhooktest.Answers(500, "", "trouble")})
	lenient := hooks.Validator
	hooks.Validator = framework.Unprivileged(lenient)
	got := webhooktest.Review(t, admission.HandlerFunc(hooks.validate), "CREATE", webhooktest.CloneSet("v1alpha1", template, ""), "")
	if diff := cmp.Diff([]string{"spec.template.spec.initContainers[0].securityContext.privileged"}, webhooktest.Fields(got)); diff != "" {
		t.Errorf("refused fields (-want +got):\n%s", diff)
	}
	if got := webhooktest.Review(t, admission.HandlerFunc(hooks.validate), "UPDATE",
		webhooktest.CloneSet("v1beta1", strings.Replace(template, `"image":"i","securityContext":{"privileged":false}`, `"image":"j"`, 1), ""),
		webhooktest.CloneSet("v1beta1", template, "")); !got.Allowed {
		t.Errorf("an update of the template: %+v", got.Result)
	}
	hooks.Validator = lenient
	if got := webhooktest.Review(t, admission.HandlerFunc(hooks.validate), "CREATE", webhooktest.CloneSet("v1beta1", template, ""), ""); !got.Allowed {
		t.Errorf("creation while the API server has trouble: %+v", got.Result)
	}
}

// OPS-066: the handlers answer any object without a panic, with 422 if it is not a CloneSet.
func TestAnyObjectIsAnsweredWithoutPanic(t *testing.T) {
	hooks := webhooks(t, &webhooktest.APIServer{Answer: webhooktest.Accepts})
	good := webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, "")
	many := strings.TrimSuffix(strings.Repeat(`"x",`, 20000), ",")
	for _, hostile := range []string{"", "null", "[]", "7", `{}`, `{"spec":null}`, `{"apiVersion":7,"spec":[]}`,
		`{"apiVersion":"apps.kruise.io/v9","spec":{}}`,
		`{"apiVersion":"apps.kruise.io/v1beta1","metadata":null,"spec":{"template":null,"selector":null,"updateStrategy":null,"scaleStrategy":null}}`,
		webhooktest.CloneSet("v1beta1", "null", ""), webhooktest.CloneSet("v1alpha1", "[]", `"updateStrategy":{"partition":99999999999}`),
		webhooktest.CloneSet("v1beta1", `{"spec":{"containers":[null,{}],"volumes":[null]}}`,
			`"volumeClaimTemplates":[null,{"metadata":null},{"metadata":{"name":7}}]`),
		webhooktest.CloneSet("v1beta1", `{"spec":[]}`, `"volumeClaimTemplates":{}`),
		webhooktest.CloneSet("v1alpha1", `{"metadata":{"labels":[]},"spec":{"volumes":{}}}`, `"scaleStrategy":{"podsToDelete":[`+many+`]}`)} {
		for operation, old := range map[admissionv1.Operation]string{"CREATE": "", "UPDATE": good} {
			if operation == "UPDATE" && hostile == "" {
				continue
			}
			name := hostile[:min(len(hostile), 200)]
			if got := webhooktest.Review(t, admission.HandlerFunc(hooks.validate), operation, hostile, old); got.Allowed || got.Result.Code != 422 {
				t.Errorf("validate %s %s: got %+v, want code 422", operation, name, got.Result)
			}
			if got := webhooktest.Review(t, admission.HandlerFunc(hooks.mutate), operation, hostile, old); !got.Allowed && got.Result.Code != 422 {
				t.Errorf("mutate %s %s: %+v", operation, name, got.Result)
			}
		}
		if got := webhooktest.Review(t, admission.HandlerFunc(hooks.validate), "UPDATE", good, hostile); got.Result != nil && got.Result.Code == 500 {
			t.Errorf("stored %s: %+v", hostile, got.Result)
		}
	}
}

// CS-014 and IPU-015: with gate TemplateNoDefaults templates stay as they are; the rest is defaulted.
func TestTemplateNoDefaults(t *testing.T) {
	server := &webhooktest.APIServer{Answer: webhooktest.Accepts}
	hooks := webhooks(t, server)
	hooks.Complete = false
	got := webhooktest.Review(t, admission.HandlerFunc(hooks.mutate), "CREATE",
		webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, `"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceOnly"}}`), "")
	if !got.Allowed || strings.Contains(string(got.Patch), "/spec/template") ||
		!strings.Contains(string(got.Patch), "inPlaceUpdateStrategy") || len(server.Asked) > 0 {
		t.Errorf("IPU-014: asked %d times, allowed %t: %s", len(server.Asked), got.Allowed, got.Patch)
	}
}

func TestDeletionsUnreadableObjectsAndPanicsAreAnswered(t *testing.T) {
	hooks := webhooks(t, &webhooktest.APIServer{Answer: webhooktest.Accepts})
	if got := webhooktest.Review(t, webhooktest.Handler(hooks.validate), "DELETE", "", webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, "")); !got.Allowed {
		t.Errorf("delete: %+v", got.Result)
	}
	if got := webhooktest.Review(t, admission.HandlerFunc(hooks.validate), "CREATE", `{"apiVersion":"apps.kruise.io/v1beta1","spec":{"replicas":"x"}}`,
		""); got.Allowed || got.Result.Code != 422 {
		t.Errorf("wrong types: got %+v, want code 422", got.Result)
	}
	if got := webhooktest.Review(t, admission.HandlerFunc(hooks.validate), "CREATE",
		webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, `"scaleStrategy":{"podsToDelete":["gone"]}`), ""); !got.Allowed || len(got.Warnings) != 1 {
		t.Errorf("CS-344: got %+v, want it allowed with a warning", got)
	}
	panics := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { panic("oops") })
	if got := webhooktest.Review(t, panics, "CREATE", "{}", ""); got.Allowed || got.Result.Code != 500 {
		t.Errorf("OPS-066 panic: got %+v, want code 500", got.Result)
	}
}
