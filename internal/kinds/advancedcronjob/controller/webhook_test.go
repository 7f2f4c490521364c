package controller

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatchapply "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

func cronJobHooks(t *testing.T, server *webhooktest.APIServer, list string) framework.Webhooks {
	t.Helper()
	return AdvancedCronJobs(&framework.Environment{Gates: webhooktest.Gates(t, list), Validator: server.Validator(t)})
}

// acj is an AdvancedCronJob with that template; more is in its spec, meta in its metadata.
func acj(version, meta, template, more string) string {
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"AdvancedCronJob","metadata":{"name":"nightly","namespace":"shop"` + meta +
		`},"spec":{"schedule":"0 3 * * *",` + more + `"template":` + template + `}}`
}

const (
	pods      = `{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"i","future":12345678901234567890}]}}`
	jobs      = `{"jobTemplate":{"spec":{"backoffLimit":2,"future":{"x":1},"template":` + pods + `}}}`
	broadcast = `{"broadcastJobTemplate":{"metadata":{"labels":{"l":"m"}},"spec":{"template":` + pods + `}}}`
	lists     = `{"imageListPullJobTemplate":{"metadata":{"annotations":{"n":"o"}},"spec":{"images":["i"],"completionPolicy":{"type":"Always"},"future":[{"y":2}]}}}`
	complete  = `"paused":false,"successfulJobsHistoryLimit":3,"failedJobsHistoryLimit":1,"concurrencyPolicy":"Allow",`
)

// inAlpha is an object of v1beta1 as v1alpha1 shows it.
func inAlpha(t *testing.T, object string) string {
	t.Helper()
	converted, err := AdvancedCronJobConversion().Convert([]byte(object), schema.GroupVersionKind{Version: framework.V1beta1}, schema.GroupVersionKind{Group: "apps.kruise.io", Version: framework.V1alpha1, Kind: "AdvancedCronJob"})
	if err != nil {
		t.Fatal(err)
	}
	return string(converted)
}

func mutatedCronJob(t *testing.T, hooks framework.Webhooks, operation admissionv1.Operation, object, old string) (framework.Document, *admissionv1.AdmissionResponse) {
	t.Helper()
	response := webhooktest.Review(t, hooks.Mutate, operation, object, old)
	text := []byte(object)
	if len(response.Patch) > 0 {
		patch, err := jsonpatchapply.DecodePatch(response.Patch)
		if err == nil {
			text, err = patch.Apply(text)
		}
		if err != nil {
			t.Fatalf("applying the patch %s: %v", response.Patch, err)
		}
	}
	completed, err := framework.DecodeDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	return completed, response
}

// plain is what a value is as JSON.
func plain(t *testing.T, value any) (decoded any) {
	t.Helper()
	if err := json.Unmarshal([]byte(webhooktest.Encoded(t, value)), &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// ACJ-010: the entries of the kind, by their names and paths, for creation and update of both versions,
// failing closed.
func TestShippedEntriesOfAdvancedCronJobs(t *testing.T) {
	for verb, kind := range map[string]string{"mutat": "mutating", "validat": "validating"} {
		data, err := os.ReadFile(filepath.Join("../../../../config/webhook", kind+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var shipped admissionregistrationv1.ValidatingWebhookConfiguration // the fields that count are those of the other kind, too
		if err := yaml.Unmarshal(data, &shipped); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(shipped.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return w.Name == verb[:1]+"advancedcronjob.kb.io"
		})
		if i < 0 {
			t.Fatalf("%s has no entry", kind)
		}
		w := &shipped.Webhooks[i]
		if path := *w.ClientConfig.Service.Path; path != "/"+verb+"e-apps-kruise-io-advancedcronjob" {
			t.Errorf("path of the entry in %s: got %s", kind, path)
		}
		if *w.FailurePolicy != "Fail" {
			t.Errorf("failure policy of the entry in %s: got %s, want Fail", kind, *w.FailurePolicy)
		}
		if len(w.Rules) != 1 {
			t.Errorf("rules of the entry in %s: got %+v, want one", kind, w.Rules)
		}
		for _, rule := range w.Rules {
			if diff := cmp.Diff([]string{framework.V1alpha1, framework.V1beta1}, rule.APIVersions); diff != "" {
				t.Errorf("versions of the entry in %s (-want +got):\n%s", kind, diff)
			}
			operations := []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}
			if diff := cmp.Diff(operations, rule.Operations); diff != "" {
				t.Errorf("operations of the entry in %s (-want +got):\n%s", kind, diff)
			}
			if diff := cmp.Diff([]string{"advancedcronjobs"}, rule.Resources); diff != "" {
				t.Errorf("resources of the entry in %s (-want +got):\n%s", kind, diff)
			}
		}
	}
}

// ACJ-113, ACJ-011 (part), ACJ-013 (part): an object of either version is completed in its own version;
// fields that nobody here knows stay.
func TestAdvancedCronJobsAreCompleted(t *testing.T) {
	hooks := cronJobHooks(t, &webhooktest.APIServer{Answer: webhooktest.Accepts}, "TemplateNoDefaults=true")
	for _, template := range []string{jobs, broadcast, lists} {
		want, response := mutatedCronJob(t, hooks, "CREATE", acj(framework.V1beta1, "", template, ""), "")
		if !response.Allowed || len(response.Warnings) > 0 {
			t.Fatalf("admission on creation: got %+v, want it allowed without warnings", response)
		}
		spec := want["spec"].(framework.Document)
		if policy := map[bool]string{false: "Allow",
			true: "Replace"}[template == lists]; spec["concurrencyPolicy"] != policy {
			t.Errorf("concurrency policy: got %v, want %s", spec["concurrencyPolicy"], policy)
		}
		if spec["paused"] != false {
			t.Errorf("paused: got %v, want false", spec["paused"])
		}
		if text := webhooktest.Encoded(t, want); !strings.Contains(text, "future") {
			t.Errorf("the field that nobody knows has gone: %s", text)
		}
		got, response := mutatedCronJob(t, hooks, "CREATE", inAlpha(t, acj(framework.V1beta1, `,"annotations":{"k":"v"}`, template, "")), "")
		if got["apiVersion"] != "apps.kruise.io/v1alpha1" {
			t.Errorf("version of the completed object: got %v, want apps.kruise.io/v1alpha1", got["apiVersion"])
		}
		if !response.Allowed {
			t.Errorf("admission in v1alpha1: %+v", response.Result)
		}
		got, err := cronJobInBeta(got)
		if err != nil {
			t.Errorf("converting the completed object to v1beta1: %v", err)
		}
		if diff := cmp.Diff(webhooktest.Encoded(t, spec), webhooktest.Encoded(t, got["spec"])); diff != "" {
			t.Errorf("spec completed in v1alpha1 (-want as in v1beta1 +got):\n%s", diff)
		}
		again, response := mutatedCronJob(t, hooks, "CREATE", webhooktest.Encoded(t, want), "")
		if len(response.Patch) > 2 {
			t.Errorf("a complete one is completed: %s %v", response.Patch, again)
		}
	}
}

// ACJ-012: pod templates get the API server's defaults on create, and on update only when they changed; never
// with the gate. Without an answer there is a warning.
func TestPodTemplatesOfAdvancedCronJobsAreCompleted(t *testing.T) {
	completes := func(template framework.Document) (int, any) {
		template["spec"].(framework.Document)["dnsPolicy"] = "ClusterFirst"
		return 201, framework.Document{"template": template}
	}
	for key, template := range map[string]string{"jobTemplate": jobs, "broadcastJobTemplate": broadcast} {
		for name, test := range map[string]struct {
			gates, old string
			answer     func(framework.Document) (int, any)
			want       bool
			warned     bool
		}{
			"created":   {"", "", completes, true, false},
			"changed":   {"", strings.Replace(template, `"image":"i"`, `"image":"j","imagePullPolicy":"Always"},{"name":"b"}],"dnsPolicy":"ClusterFirst","x":[{"y":"z"`, 1), completes, true, false},
			"unchanged": {"", template, completes, false, false},
			"gate":      {"TemplateNoDefaults=true", "", completes, false, false},
			"away":      {"", "", webhooktest.Answers(503, metav1.StatusReasonServiceUnavailable, "away"), false, true},
		} {
			old, operation := "", admissionv1.Create
			if test.old != "" {
				old, operation = acj(framework.V1beta1, "", test.old, complete), admissionv1.Update
			}
			got, response := mutatedCronJob(t, cronJobHooks(t, &webhooktest.APIServer{Answer: test.answer}, test.gates), operation, acj(framework.V1beta1, "", template, complete), old)
			text := webhooktest.Encoded(t, got)
			if strings.Contains(text, `"dnsPolicy":"ClusterFirst"`) != test.want {
				t.Errorf("%s, %s: a defaulted DNS policy: want %t, got %s", key, name, test.want, text)
			}
			if test.want && !strings.Contains(text, `"imagePullPolicy":"Always"`) {
				t.Errorf("%s, %s: no defaulted pull policy of the image: %s", key, name, text)
			}
			if len(response.Warnings) > 0 != test.warned {
				t.Errorf("%s, %s: warnings: got %q, want some: %t", key, name, response.Warnings, test.warned)
			}
			if strings.Contains(text, "completionPolicy") {
				t.Errorf("%s, %s: completed with a completion policy: %s", key, name, text)
			}
		}
	}
}

// ACJ-029, ACJ-026 (part): whatever part finds a fault, the refusal has it, with 422 and the fields of the
// v1beta1 form.
func TestARefusalOfAnAdvancedCronJobNamesAllFaults(t *testing.T) {
	server := &webhooktest.APIServer{Answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
		metav1.StatusCause{Type: "FieldValueRequired", Field: "template.spec.containers[0].image", Message: "Required value"})}
	hooks := cronJobHooks(t, server, "")
	for key, template := range map[string]string{"jobTemplate": jobs, "broadcastJobTemplate": broadcast} {
		for _, version := range []string{framework.V1alpha1, framework.V1beta1} {
			got := webhooktest.Review(t, hooks.Validate, "CREATE", acj(version, "", template, `"startingDeadlineSeconds":-1,`), "")
			want := []string{"spec.startingDeadlineSeconds", "spec.template." + key + ".spec.template.spec.containers[0].image"}
			if got.Allowed {
				t.Errorf("a bad %s in %s is admitted", key, version)
			} else if got.Result.Code != http.StatusUnprocessableEntity {
				t.Errorf("a bad %s in %s: refused by %d, want 422: %+v", key, version, got.Result.Code, got.Result)
			}
			if diff := cmp.Diff(want, webhooktest.Fields(got)); diff != "" {
				t.Errorf("refused fields of %s in %s (-want +got):\n%s", key, version, diff)
			}
		}
		good := acj(framework.V1beta1, "", template, complete)
		if got := webhooktest.Review(t, hooks.Validate, "UPDATE", strings.Replace(good, "0 3", "0 4", 1), good); !got.Allowed {
			t.Errorf("ACJ-028: a template that stays: %+v", got.Result)
		}
		another := strings.Replace(good, `"image":"i"`, `"image":"j"`, 1)
		if got := webhooktest.Review(t, hooks.Validate, "UPDATE", another, good); got.Allowed {
			t.Error("ACJ-028: another template is admitted")
		} else if !slices.Contains(webhooktest.Fields(got), "spec") {
			t.Errorf("ACJ-028: another template: got refused fields %q, want spec", webhooktest.Fields(got))
		}
	}
	if got := webhooktest.Review(t, hooks.Validate, "CREATE", `{"apiVersion":"apps.kruise.io/v1beta1","spec":{"paused":"x"}}`, ""); got.Allowed ||
		got.Result.Code != http.StatusUnprocessableEntity {
		t.Errorf("wrong types: got %+v, want code 422", got.Result)
	}
	unreadable := acj(framework.V1alpha1, `,"annotations":{"`+pub.ImageListTemplate+`":"[]"}`, "{}", "")
	if got := webhooktest.Review(t, hooks.Validate, "CREATE", unreadable, ""); got.Allowed {
		t.Error("an unreadable template in the annotation is admitted")
	} else {
		for _, field := range []string{"metadata.annotations[" + pub.ImageListTemplate + "]", "spec.template"} {
			if !slices.Contains(webhooktest.Fields(got), field) {
				t.Errorf("refused fields of an unreadable template: got %q, want also %s", webhooktest.Fields(got), field)
			}
		}
	}
	if got := webhooktest.Review(t, hooks.Validate, "UPDATE", strings.Replace(unreadable, `"nightly"`, `"nightly","finalizers":[]`, 1), unreadable); !got.Allowed {
		t.Errorf("metadata only: %+v", got.Result)
	}
}

// ACJ-111 (part): what is admitted fits into v1alpha1, whoever makes it large, and when: else the API server
// fails each list of that version. What is stored so may change, and go, as long as it does not grow.
func TestAdmittedAdvancedCronJobsFitIntoV1alpha1(t *testing.T) {
	hooks := cronJobHooks(t, &webhooktest.APIServer{Answer: webhooktest.Accepts}, "TemplateNoDefaults=true")
	allowed := strings.Replace(complete, "Allow", "Replace", 1)
	object := func(note, own int) string {
		return acj(framework.V1beta1, `,"annotations":{"k":"`+strings.Repeat("x", own)+`"}`, strings.Replace(lists, `"n":"o"`, `"n":"`+strings.Repeat("<", note)+`"`, 1), allowed)
	}
	const small, large = 1000, 50_000 // a character takes six in JSON
	for name, test := range map[string]struct {
		object, old string
		want        bool
	}{
		"small":                     {object(small, 10), "", true},
		"a large template":          {object(large, 10), "", false},
		"many annotations":          {object(small, 260_000), "", false},
		"it grows":                  {object(large, 10), object(small, 10), false},
		"its annotations grow":      {object(small, 260_000), object(small, 10), false},
		"stored so, a finalizer":    {strings.Replace(object(large, 10), `"nightly"`, `"nightly","finalizers":[]`, 1), object(large, 10), true},
		"stored so, it shrinks":     {object(large-1, 10), object(large, 10), true},
		"a template without a list": {acj(framework.V1beta1, `,"annotations":{"k":"`+strings.Repeat("x", 260_000)+`"}`, jobs, complete), "", true},
	} {
		operation := admissionv1.Create
		if test.old != "" {
			operation = admissionv1.Update
		}
		got := webhooktest.Review(t, hooks.Validate, operation, test.object, test.old)
		if got.Allowed != test.want {
			t.Errorf("%s: allowed: got %t, want %t: %+v", name, got.Allowed, test.want, got.Result)
		}
		if !test.want && !slices.Contains(webhooktest.Fields(got), "spec.template.imageListPullJobTemplate") {
			t.Errorf("%s: refused fields: got %q, want the template for image lists", name, webhooktest.Fields(got))
		}
		if test.old != "" {
			continue
		}
		shown := &appsv1alpha1.AdvancedCronJob{}
		if err := json.Unmarshal([]byte(inAlpha(t, test.object)), shown); err != nil {
			t.Fatal(err)
		}
		if err := apivalidation.ValidateAnnotations(shown.Annotations, nil).ToAggregate(); (err == nil) != got.Allowed {
			t.Errorf("%s: the API server says of the annotations: %v", name, err)
		}
	}
}

// ACJ-026: the pod template and the rest of an embedded job are judged by the rules of its kind: Jobs end,
// and BroadcastJobs follow their own.
func TestEmbeddedJobsAreJudged(t *testing.T) {
	hooks := cronJobHooks(t, &webhooktest.APIServer{Answer: webhooktest.Accepts}, "")
	const bcj = "spec.template.broadcastJobTemplate.spec."
	for name, test := range map[string]struct{ template, old, new, want string }{
		"good":          {jobs, "", "", ""},
		"a Job":         {jobs, `"Never"`, `"Always"`, "spec.template.jobTemplate.spec.template.spec.restartPolicy"},
		"fine":          {broadcast, "", "", ""},
		"BJ-021 (part)": {broadcast, `"spec":{"template"`, `"spec":{"completionPolicy":{"type":"Never","ttlSecondsAfterFinished":1},"template"`, bcj + "completionPolicy.ttlSecondsAfterFinished"},
		"BJ-022 (part)": {broadcast, `"Never"`, `"Always"`, bcj + "template.spec.restartPolicy"},
		"BJ-023 (part)": {broadcast, `{"a":"b"}`, `{"broadcastjob-name":"b"}`, bcj + "template.metadata.labels[broadcastjob-name]"},
		"BJ-026 (part)": {broadcast, `"spec":{"template"`, `"spec":{"parallelism":-1,"template"`, bcj + "parallelism"},
	} {
		given := strings.Replace(acj(framework.V1beta1, "", test.template, complete), test.old, test.new, 1)
		got := webhooktest.Review(t, hooks.Validate, "CREATE", given, "")
		if list := strings.Join(webhooktest.Fields(got), " "); list != test.want {
			t.Errorf("%s: refused fields: got %q, want %q: %+v", name, list, test.want, got.Result)
		}
		if want := test.want == ""; got.Allowed != want {
			t.Errorf("%s: allowed: got %t, want %t: %+v", name, got.Allowed, want, got.Result)
		}
	}
}

// ACJ-033, ACJ-121: what is admitted may come with a warning.
func TestWarningsAboutAdvancedCronJobs(t *testing.T) {
	never := strings.Replace(acj(framework.V1beta1, "", broadcast, strings.Replace(complete, "Allow", "Forbid", 1)), `"spec":{"template"`, `"spec":{"completionPolicy":{"type":"Never"},"template"`, 1)
	pull := acj(framework.V1beta1, "", lists, strings.Replace(complete, "Allow", "Replace", 1))
	for name, test := range map[string]struct {
		object, old, gates string
		want               string
	}{
		"ACJ-033":                    {never, "", "", "concurrencyPolicy Forbid"},
		"ACJ-121 all gates are on":   {pull, "", "", ""},
		"ACJ-121 no node daemon":     {pull, "", "KruiseDaemon=false", "KruiseDaemon"},
		"ACJ-121 on create alone":    {strings.Replace(pull, "0 3", "0 4", 1), pull, "KruiseDaemon=false", ""},
		"ACJ-121 other templates":    {acj(framework.V1beta1, "", jobs, complete), "", "KruiseDaemon=false", ""},
		"ACJ-121 no jobs for images": {pull, "", "ImagePullJobGate=false,PreDownloadImageForInPlaceUpdate=false,PreDownloadImageForDaemonSetUpdate=false", "ImagePullJobGate"},
	} {
		operation := admissionv1.Create
		if test.old != "" {
			operation = admissionv1.Update
		}
		got := webhooktest.Review(t, cronJobHooks(t, &webhooktest.APIServer{Answer: webhooktest.Accepts}, test.gates).Validate, operation, test.object, test.old)
		if !got.Allowed {
			t.Errorf("%s: admission: %+v", name, got.Result)
		}
		text := strings.Join(got.Warnings, "\n")
		if (test.want == "") != (text == "") || !strings.Contains(text, test.want) {
			t.Errorf("%s: warnings: got %q, want %q", name, text, test.want)
		}
	}
}

// ACJ-110, ACJ-111: conversion loses nothing in either direction; the template that v1alpha1 lacks is in an
// annotation there, and never in v1beta1. It is that of the types, too.
func TestConversionOfAdvancedCronJobs(t *testing.T) {
	status := `"status":{"type":"ImageListPullJob","lastScheduleTime":"2030-01-01T03:00:00Z","active":[{"name":"x"}]}`
	for _, template := range []string{jobs, broadcast, lists} {
		given := strings.TrimSuffix(acj(framework.V1beta1, `,"annotations":{"k":"v"}`, template, complete), "}") + "," + status + "}"
		there := inAlpha(t, given)
		document, err := framework.DecodeDocument([]byte(there))
		if err != nil {
			t.Fatalf("reading what was converted to v1alpha1: %v: %s", err, there)
		}
		if document["apiVersion"] != "apps.kruise.io/v1alpha1" {
			t.Fatalf("converted to %v, want apps.kruise.io/v1alpha1: %s", document["apiVersion"], there)
		}
		annotations := document["metadata"].(map[string]any)["annotations"].(map[string]any)
		if has := annotations[pub.ImageListTemplate] != nil; has != (template == lists) {
			t.Errorf("the template for image lists in an annotation: got %t, want %t: %s", has, !has, there)
		}
		if strings.Contains(webhooktest.Encoded(t, document["spec"]), "imageListPullJobTemplate") {
			t.Errorf("the spec in v1alpha1 has the template for image lists: %s", there)
		}
		if got := document["status"].(map[string]any)["type"]; got != "ImageListPullJob" {
			t.Errorf("type in the status: got %v, want ImageListPullJob: %s", got, there)
		}
		back, err := AdvancedCronJobConversion().Convert([]byte(there), schema.GroupVersionKind{Version: framework.V1alpha1}, schema.GroupVersionKind{Group: "apps.kruise.io", Version: framework.V1beta1, Kind: "AdvancedCronJob"})
		var want, got any
		if err == nil {
			err = json.Unmarshal([]byte(given), &want)
		}
		if err == nil {
			err = json.Unmarshal(back, &got)
		}
		if err != nil {
			t.Errorf("converting back to v1beta1: %v", err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after conversion there and back (-want +got):\n%s", diff)
		}
		typed, old := &appsv1beta1.AdvancedCronJob{}, &appsv1alpha1.AdvancedCronJob{}
		if err := json.Unmarshal([]byte(given), typed); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(there), old); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plain(t, typed.Spec), plain(t, old.ToV1beta1().Spec)); diff != "" {
			t.Errorf("the types: %s", diff)
		}
		if diff := cmp.Diff(plain(t, old.Spec), plain(t, appsv1alpha1.AdvancedCronJobFromV1beta1(typed).Spec)); diff != "" {
			t.Errorf("the types: %s", diff)
		}
	}
	for annotation, survives := range map[string]bool{`{"spec":{"images":["i"]}}`: true, `[]`: false, `{`: false, ``: false, `null`: false} {
		text, _ := json.Marshal(annotation)
		given := acj(framework.V1alpha1, `,"annotations":{"`+pub.ImageListTemplate+`":`+string(text)+`}`, "{}", "")
		converted, err := AdvancedCronJobConversion().Convert([]byte(given), schema.GroupVersionKind{Version: framework.V1alpha1}, schema.GroupVersionKind{Group: "apps.kruise.io", Version: framework.V1beta1})
		if err != nil {
			t.Errorf("converting the annotation %q to v1beta1: %v", annotation, err)
		}
		if strings.Contains(string(converted), "images") != survives {
			t.Errorf("annotation %q: images in v1beta1: want %t, got %s", annotation, survives, converted)
		}
		if strings.Contains(string(converted), pub.ImageListTemplate) {
			t.Errorf("annotation %q stays in v1beta1: %s", annotation, converted)
		}
	}
	if got := inAlpha(t, acj(framework.V1beta1, `,"annotations":{"`+pub.ImageListTemplate+`":"{}"}`, jobs, "")); strings.Contains(got, pub.ImageListTemplate) {
		t.Errorf("an annotation in v1beta1 would become a template: %s", got)
	}
}
