package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	jsonpatchapply "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

func imageHandlers(t *testing.T, list string) map[string]admission.Handler {
	t.Helper()
	handlers := webhooktest.Handlers(t, NodeImage, list, nodeImages(func() time.Time { return time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC) }))
	maps.Copy(handlers, webhooktest.Handlers(t, ImagePullJob, list, ImagePullJobs(nil)))
	maps.Copy(handlers, webhooktest.Handlers(t, ImageListPullJob, list, ImageListPullJobs(nil)))
	return handlers
}

func mutated(t *testing.T, path, object string) framework.Document {
	t.Helper()
	response := webhooktest.Review(t, imageHandlers(t, "")[path], admissionv1.Create, object, "")
	if !response.Allowed {
		t.Fatalf("admission: %+v", response.Result)
	}
	text := []byte(object)
	if len(response.Patch) > 0 {
		patch, err := jsonpatchapply.DecodePatch(response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		if text, err = patch.Apply(text); err != nil {
			t.Fatalf("applying the patch %s: %v", response.Patch, err)
		}
	}
	got, err := framework.DecodeDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestImageKindsAreCompleted(t *testing.T) {
	const full = `"pullPolicy":{"backoffLimit":3,"timeoutSeconds":600}`
	cases := map[string]struct{ path, kind, metadata, spec, want, finalizers string }{
		"IMG-031, IMG-032 a job": {"/mutate-apps-kruise-io-imagepulljob", "ImagePullJob", "",
			`{"image":"a","completionPolicy":{},"future":12345678901234567890}`,
			`{"image":"a","completionPolicy":{"type":"Always"},"future":12345678901234567890,"imagePullPolicy":"IfNotPresent",` + full +
				`}`, `["apps.kruise.io/deletion-protection"]`},
		"IMG-031 what is given stays": {"/mutate-apps-kruise-io-imagepulljob", "ImagePullJob", `,"finalizers":["f"]`,
			`{"image":"a","completionPolicy":{"type":"Never"},"imagePullPolicy":"Always","pullPolicy":{"backoffLimit":0}}`,
			`{"image":"a","completionPolicy":{"type":"Never"},"imagePullPolicy":"Always","pullPolicy":{"backoffLimit":0,"timeoutSeconds":600}}`, `["f","apps.kruise.io/deletion-protection"]`},
		"IMG-045 a list": {"/mutate-apps-kruise-io-imagelistpulljob", "ImageListPullJob", "", `{"images":["a"]}`,
			`{"images":["a"],"completionPolicy":{"type":"Always"},` + full + `}`, ""},
		"IMG-015, IMG-021, IMG-022, IMG-026 a node": {"/mutate-apps-kruise-io-nodeimage", "NodeImage", "", `{"images":{"r.io/a/b":{"future":1,"tags":[{"tag":"2","future":2},{"tag":"1","createdAt":"2025-01-01T00:00:00Z","pullPolicy":{"backoffLimit":-1,"ttlSecondsAfterFinished":5}}]}}}`,
			`{"images":{"r.io/a/b":{"future":1,"tags":[` +
				`{"tag":"1","createdAt":"2025-01-01T00:00:00Z","imagePullPolicy":"IfNotPresent","pullPolicy":{"backoffLimit":3,"timeoutSeconds":600,"ttlSecondsAfterFinished":5}},` +
				`{"tag":"2","future":2,"createdAt":"2026-01-01T10:00:00Z","imagePullPolicy":"IfNotPresent",` + full + `}]}}}`, ""},
	}
	for name, test := range cases {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			t.Run(name+" "+version, func(t *testing.T) {
				got := mutated(t, test.path, webhooktest.Object(version, test.kind, test.metadata, test.spec))
				want, err := framework.DecodeDocument([]byte(test.want))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got["spec"]); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				finalizers := ""
				if list, ok := got["metadata"].(framework.Document)["finalizers"]; ok {
					text, _ := json.Marshal(list)
					finalizers = string(text)
				}
				if finalizers != test.finalizers {
					t.Errorf("finalizers %s", finalizers)
				}
			})
		}
	}
	object := strings.Replace(webhooktest.Object("v1beta1", "NodeImage", "", `{}`), `"spec":{}`,
		`"spec":{},"status":{"desired":2,"imageStatuses":{"a":{"tags":[{"tag":"2","phase":"Failed"},{"tag":"1","phase":"Failed"}]}}}`, 1)
	tags := mutated(t, "/mutate-apps-kruise-io-nodeimage", object)["status"].(framework.Document)["imageStatuses"].(framework.Document)["a"].(framework.Document)["tags"].([]any)
	if tags[0].(framework.Document)["tag"] != "1" {
		t.Errorf("IMG-022: %v", tags)
	}
}

func TestBadImageKindsAreRefused(t *testing.T) {
	many := func(n int) (entries, list string) {
		var a, b []string
		for i := range n {
			a, b = append(a, fmt.Sprintf(`"i%d":{"tags":[]}`, i)), append(b, fmt.Sprintf(`"i%d"`, i))
		}
		return `{"images":{` + strings.Join(a, ",") + `}}`, `{"images":[` + strings.Join(b, ",") + `]}`
	}
	full, _ := many(1025)
	_, fullList := many(257)
	fit, fitList := many(255)
	tag := func(more string) string {
		return `{"images":{"a":{"tags":[{"tag":"1","createdAt":"2026-01-01T00:00:00Z","pullPolicy":{"ttlSecondsAfterFinished":1}` + more +
			`}]}}}`
	}
	job := func(more string) string { return `{"image":"a","completionPolicy":{"type":"Always"}` + more + `}` }
	cases := map[string]struct{ kind, spec, message string }{
		"IMG-023 too many images": {"NodeImage", full, "1025"},
		"IMG-023 many images":     {"NodeImage", fit, ""},
		"IMG-024 no name":         {"NodeImage", `{"images":{"":{"tags":[]}}}`, "empty"},
		"IMG-024 no tag":          {"NodeImage", `{"images":{"a":{"tags":[{"tag":""}]}}}`, "empty tag"},
		"IMG-024 a tag twice": {"NodeImage",
			strings.Replace(tag(""), `"tags":[`,
				`"tags":[{"tag":"1","createdAt":"2026-01-01T00:00:00Z","pullPolicy":{"ttlSecondsAfterFinished":1}},`, 1),
			"a:1 is listed twice"},
		"IMG-025 no createdAt": {"NodeImage", `{"images":{"a":{"tags":[{"tag":"1"}]}}}`, "a:1: createdAt"},
		"IMG-025 no pull policy": {"NodeImage", `{"images":{"a":{"tags":[{"tag":"1","createdAt":"2026-01-01T00:00:00Z"}]}}}`,
			"pullPolicy is missing"},
		"IMG-025 no TTL": {"NodeImage",
			`{"images":{"a":{"tags":[{"tag":"1","createdAt":"2026-01-01T00:00:00Z","pullPolicy":{}}]}}}`, "ttlSecondsAfterFinished"},
		"IMG-025 a negative version": {"NodeImage", tag(`,"version":-1`), "negative"},
		"IMG-026 a negative time": {"NodeImage",
			`{"images":{"a":{"tags":[{"tag":"1","createdAt":"2026-01-01T00:00:00Z","pullPolicy":{"ttlSecondsAfterFinished":-1}}]}}}`,
			"negative"},
		"IMG-026 no name of an image":    {"NodeImage", `{"images":{"A B":{"tags":[]}}}`, "no name"},
		"IMG-026 a tag in the name":      {"NodeImage", `{"images":{"a:1":{"tags":[]}}}`, "belongs into tags"},
		"IMG-014 an unknown pull policy": {"NodeImage", tag(`,"imagePullPolicy":"Never"`), "imagePullPolicy"},
		"a good node":                    {"NodeImage", tag(""), ""},
		"a good job":                     {"ImagePullJob", job(""), ""},
		"IMG-034 names and labels":       {"ImagePullJob", job(`,"selector":{"names":["n"],"matchLabels":{"a":"b"}}`), "excludes"},
		"IMG-034 a bad selector": {"ImagePullJob", job(`,"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}`),
			"selector"},
		"IMG-034 a name twice":       {"ImagePullJob", job(`,"selector":{"names":["n","m","n"]}`), "twice"},
		"IMG-035 both selectors":     {"ImagePullJob", job(`,"selector":{},"podSelector":{}`), "exclude"},
		"IMG-035 a bad pod selector": {"ImagePullJob", job(`,"podSelector":{"matchLabels":{"a b":"c"}}`), "podSelector"},
		"IMG-036 no image":           {"ImagePullJob", `{"image":"","completionPolicy":{}}`, "spec.image"},
		"IMG-036 a bad image":        {"ImagePullJob", `{"image":"a b","completionPolicy":{}}`, "spec.image"},
		"IMG-037 a percentage":       {"ImagePullJob", job(`,"parallelism":"10%"`), "does not support percentage value"},
		"IMG-037 no number":          {"ImagePullJob", job(`,"parallelism":"many"`), "no number"},
		"IMG-037 negative":           {"ImagePullJob", job(`,"parallelism":-1`), "negative"},
		"IMG-037 negative text":      {"ImagePullJob", job(`,"parallelism":"-1"`), "negative"},
		"IMG-017 zero, as text":      {"ImagePullJob", job(`,"parallelism":"0"`), ""},
		"IMG-038 too short": {"ImagePullJob",
			`{"image":"a","completionPolicy":{"type":"Always","activeDeadlineSeconds":9},"pullPolicy":{"timeoutSeconds":10}}`,
			"must be greater"},
		"IMG-038 equal": {"ImagePullJob",
			`{"image":"a","completionPolicy":{"type":"Always","activeDeadlineSeconds":10},"pullPolicy":{"timeoutSeconds":10}}`, ""},
		"IMG-039 never with a deadline": {"ImagePullJob", `{"image":"a","completionPolicy":{"type":"Never","activeDeadlineSeconds":9}}`,
			"can not be set"},
		"IMG-039 never with a TTL": {"ImagePullJob",
			`{"image":"a","completionPolicy":{"type":"Never","ttlSecondsAfterFinished":9}}`, "can not be set"},
		"IMG-040 an unknown type": {"ImagePullJob", `{"image":"a","completionPolicy":{"type":"Once"}}`, "Once"},
		"IMG-045 no images":       {"ImageListPullJob", `{"images":[],"completionPolicy":{}}`, "image can not be empty"},
		"IMG-045 too many":        {"ImageListPullJob", fullList, "257"},
		"IMG-045 many":            {"ImageListPullJob", fitList, ""},
		"IMG-045 the deadline is free": {"ImageListPullJob",
			`{"images":["a"],"completionPolicy":{"activeDeadlineSeconds":9},"pullPolicy":{"timeoutSeconds":10}}`, ""},
		"IMG-046 the same image": {"ImageListPullJob",
			`{"images":["nginx","docker.io/library/nginx:latest"],"completionPolicy":{}}`, "same image"},
		"IMG-045 percentage of a list": {"ImageListPullJob", `{"images":["a"],"completionPolicy":{},"parallelism":"5%"}`,
			"percentage"},
		"IMG-016 neither type is necessary": {"ImageListPullJob", `{"images":["a"],"completionPolicy":{}}`, ""},
	}
	paths := map[string]string{"NodeImage": "/validate-apps-kruise-io-nodeimage", "ImagePullJob": "/validate-apps-kruise-io-imagepulljob",
		"ImageListPullJob": "/validate-apps-kruise-io-imagelistpulljob"}
	for name, test := range cases {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			t.Run(name+" "+version, func(t *testing.T) {
				response := webhooktest.Review(t, imageHandlers(t, "")[paths[test.kind]], admissionv1.Create, webhooktest.Object(version, test.kind, "", test.spec), "")
				if want := test.message == ""; response.Allowed != want {
					t.Errorf("allowed %t, want %t: %+v", response.Allowed, want, response.Result)
				} else if !want && response.Result.Code != 400 {
					t.Errorf("refused with %+v, want code 400", response.Result)
				} else if !want && !strings.Contains(response.Result.Message, test.message) {
					t.Errorf("refused with %q, want %q in it", response.Result.Message, test.message)
				}
			})
		}
	}
}

func TestImageUpdatesAndGates(t *testing.T) {
	before := webhooktest.Object("v1beta1", "ImagePullJob", "", `{"image":"a","completionPolicy":{},"pullSecrets":["s"]}`)
	after := strings.Replace(before, `["s"]`, `["t"]`, 1)
	if r := webhooktest.Review(t, imageHandlers(t, "")["/validate-apps-kruise-io-imagepulljob"], admissionv1.Update, after, before); r.Allowed {
		t.Error("IMG-033: other pull secrets are admitted")
	} else if !strings.Contains(r.Result.Message, "spec.pullSecrets is immutable") {
		t.Errorf("IMG-033: refused with %q, want the field in it", r.Result.Message)
	}
	ended := strings.TrimSuffix(before, "}") + `,"status":{"desired":0,"completionTime":"2026-01-01T00:00:00Z"}}`
	if r := webhooktest.Review(t, imageHandlers(t, "")["/validate-apps-kruise-io-imagepulljob"], admissionv1.Update, strings.Replace(ended, `"a"`, `"b"`, 1),
		ended); !r.Allowed {
		t.Errorf("IMG-042, IMG-222: another image of a job that ended: %+v", r.Result)
	} else if len(r.Warnings) != 1 {
		t.Errorf("IMG-042, IMG-222: another image of a job that ended: got warnings %q, want one", r.Warnings)
	}
	for path, node := range map[string]bool{"/mutate-apps-kruise-io-nodeimage": true, "/validate-apps-kruise-io-nodeimage": true, "/mutate-apps-kruise-io-imagepulljob": false,
		"/validate-apps-kruise-io-imagepulljob": false, "/mutate-apps-kruise-io-imagelistpulljob": false, "/validate-apps-kruise-io-imagelistpulljob": false} {
		off, noJobs := imageHandlers(t, "KruiseDaemon=false"),
			imageHandlers(t, "ImagePullJobGate=false,PreDownloadImageForInPlaceUpdate=false")
		if r := webhooktest.Review(t, off[path], admissionv1.Create, before, ""); r.Allowed {
			t.Errorf("IMG-020, IMG-030 %s: admitted without KruiseDaemon", path)
		} else if r.Result.Code != 403 {
			t.Errorf("IMG-020, IMG-030 %s: refused with %+v, want code 403", path, r.Result)
		} else if !strings.Contains(r.Result.Message, "KruiseDaemon") {
			t.Errorf("IMG-020, IMG-030 %s: refused with %q, want the gate in it", path, r.Result.Message)
		}
		r := webhooktest.Review(t, noJobs[path], admissionv1.Create, `{"apiVersion":"apps.kruise.io/v1beta1","spec":{}}`, "")
		if r.Allowed != node {
			t.Errorf("IMG-020, IMG-030 %s without ImagePullJobGate: allowed %t, want %t", path, r.Allowed, node)
		} else if !node && r.Result.Code != 403 {
			t.Errorf("IMG-020, IMG-030 %s: refused with %+v, want code 403", path, r.Result)
		} else if !node && !strings.Contains(r.Result.Message, "ImagePullJobGate") {
			t.Errorf("IMG-020, IMG-030 %s: refused with %q, want the gate in it", path, r.Result.Message)
		}
	}
	// If a gate is off, no controller removes the finalizer of an object that is being deleted: users must be
	// able to.
	leaving := webhooktest.Object("v1beta1", "ImagePullJob",
		`,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["apps.kruise.io/deletion-protection"]`,
		`{"image":"a","completionPolicy":{}}`)
	free := strings.Replace(leaving, `,"finalizers":["apps.kruise.io/deletion-protection"]`, "", 1)
	for _, path := range []string{"/mutate-apps-kruise-io-imagepulljob", "/validate-apps-kruise-io-imagepulljob", "/mutate-apps-kruise-io-imagelistpulljob", "/validate-apps-kruise-io-imagelistpulljob", "/mutate-apps-kruise-io-nodeimage",
		"/validate-apps-kruise-io-nodeimage"} {
		off := imageHandlers(t, "KruiseDaemon=false")
		if r := webhooktest.Review(t, off[path], admissionv1.Update, free, leaving); !r.Allowed {
			t.Errorf("IMG-020, IMG-030 %s of what is being deleted: %+v", path, r.Result)
		}
		if r := webhooktest.Review(t, off[path], admissionv1.Update, before, before); r.Allowed {
			t.Errorf("IMG-020, IMG-030 %s is allowed", path)
		}
	}
}

// IMG-025, IMG-026: tags that are stored are not validated again, so that the other images of the node can
// change; new tags are validated.
func TestStoredTagsAreNotJudgedAgain(t *testing.T) {
	const policy = `"createdAt":"2025-01-01T00:00:00Z","pullPolicy":{"ttlSecondsAfterFinished":5}`
	stored := `{"images":{"Upper":{"tags":[{"tag":"1",` + policy + `}]},"app":{"tags":[{"tag":"1","imagePullPolicy":"ifnotpresent",` +
		policy + `},{"tag":"2",` + policy + `}]}}}`
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		before := webhooktest.Object(version, "NodeImage", "", stored)
		for name, test := range map[string]struct {
			from, to string
			allowed  bool
		}{
			"another tag":            {`{"tag":"2",`, `{"tag":"3",`, true},
			"a label":                {`"name":"x"`, `"name":"x","labels":{"a":"b"}`, true},
			"another unknown policy": {`"imagePullPolicy":"ifnotpresent"`, `"imagePullPolicy":"IFNOTPRESENT"`, false},
			"another bad name":       {`"Upper"`, `"UPPER"`, false},
			"a tag twice":            {`{"tag":"2",`, `{"tag":"1",`, false},
		} {
			if r := webhooktest.Review(t, imageHandlers(t, "")["/validate-apps-kruise-io-nodeimage"], admissionv1.Update,
				strings.Replace(before, test.from, test.to, 1), before); r.Allowed != test.allowed {
				t.Errorf("%s %s: allowed %t, want %t: %+v", version, name, r.Allowed, test.allowed, r.Result)
			}
		}
	}
}
