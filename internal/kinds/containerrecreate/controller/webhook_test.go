package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatchapply "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
)

func recreateHandler(t *testing.T, pod *corev1.Pod, more ...runtime.Object) *recreateWebhook {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", Labels: map[string]string{"type": "virtual-kubelet"}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node, pod).WithRuntimeObjects(more...).Build()
	return &recreateWebhook{live: c, cached: c}
}

func crr(version, metadata, spec string) string {
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"ContainerRecreateRequest","metadata":{"name":"r","namespace":"shop"` +
		metadata + `},"spec":` + spec + `}`
}

// admitted returns the document after the patches of the webhook's answer.
func admitted(t *testing.T, response *admissionv1.AdmissionResponse, given string) string {
	t.Helper()
	if !response.Allowed {
		t.Fatalf("admission: %+v", response.Result)
	}
	return patched(t, given, response.Patch)
}

func patched(t *testing.T, given string, body []byte) string {
	t.Helper()
	patch, err := jsonpatchapply.DecodePatch(body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := patch.Apply([]byte(given))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// CRR-011, CRR-021, CRR-035, CRR-037, CRR-038, CRR-039, CRR-040: what is written into a request, in both
// versions. The webhook itself writes only what says nothing about the pod. The facts about the pod follow by
// an update, for which the webhook accepts the true facts and no others.
func TestRecreateRequestsAreFrozen(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		given := crr(version, `,"labels":{"a":"b","crr.apps.kruise.io/active":"forged","crr.apps.kruise.io/pod-uid":"forged","crr.apps.kruise.io/node-name":"forged"}`,
			`{"podName":"web-7","future":12345678901234567890,"containers":[{"name":"plain","future":1},{"name":"exec"},{"name":"http"},{"name":"tcp"},{"name":"sleep"},{"name":"native"}]}`)
		pod := containerrecreatetest.Recreatable()
		handler := webhooktest.Handler(recreateHandler(t, pod).mutate)
		before := admitted(t, webhooktest.Review(t, handler, admissionv1.Create, given, ""), given)
		got, err := framework.DecodeDocument([]byte(before))
		if err != nil {
			t.Fatal(err)
		}
		labels := framework.Document{"a": "b", "crr.apps.kruise.io/active": "true", "crr.apps.kruise.io/pod-uid": "pod-1"}
		if diff := cmp.Diff(labels, got["metadata"].(framework.Document)["labels"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
		request := &appsv1beta1.ContainerRecreateRequest{}
		if err := json.Unmarshal([]byte(before), request); err != nil { // the versions do not differ in what counts here
			t.Fatal(err)
		}
		_, patch, refusal := containerrecreate.Fill(request, pod, map[string]string{"type": "virtual-kubelet"})
		if refusal != nil {
			t.Fatalf("filling in the request: %v", refusal)
		}
		body, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		text := patched(t, before, body)
		if got, err = framework.DecodeDocument([]byte(text)); err != nil {
			t.Fatal(err)
		}
		context := func(name string, n string) framework.Document {
			return framework.Document{"containerID": "c://" + name, "restartCount": json.Number(n)}
		}
		ports := []any{framework.Document{"name": "http", "containerPort": json.Number("80"), "protocol": "TCP"}}
		want := framework.Document{
			"podName": "web-7", "future": json.Number("12345678901234567890"),
			"strategy": framework.Document{"failurePolicy": "Fail", "terminationGracePeriodSeconds": json.Number("45")},
			"containers": []any{
				framework.Document{"name": "plain", "future": json.Number("1"), "statusContext": context("plain", "2")},
				framework.Document{"name": "exec", "statusContext": context("exec", "2"),
					"preStop": framework.Document{"exec": framework.Document{"command": []any{"stop"}}}},
				framework.Document{"name": "http", "statusContext": context("http", "2"),
					"preStop": framework.Document{"httpGet": framework.Document{"path": "/stop", "port": "http"}}, "ports": ports},
				framework.Document{"name": "tcp", "statusContext": context("tcp", "2"),
					"preStop": framework.Document{"tcpSocket": framework.Document{"port": json.Number("80")}}, "ports": ports},
				framework.Document{"name": "sleep", "statusContext": context("sleep", "2")},
				framework.Document{"name": "native", "statusContext": context("native", "0")}, // CRR-034
			},
		}
		if diff := cmp.Diff(want, got["spec"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
		labels["crr.apps.kruise.io/node-name"], labels["type"] = "node-a", "virtual-kubelet"
		if diff := cmp.Diff(labels, got["metadata"].(framework.Document)["labels"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
		if r := webhooktest.Review(t, handler, admissionv1.Update, text, before); !r.Allowed {
			t.Errorf("admission of what is filled in, in %s: %+v", version, r.Result)
		} else if len(r.Patch) > 0 {
			t.Errorf("patch of what is filled in, in %s: got %s, want none", version, r.Patch)
		}
		for what, forged := range map[string]string{
			"another hook":      strings.Replace(text, `["stop"]`, `["steal"]`, 1),
			"another container": strings.Replace(text, "c://plain", "c://other", 1),
			"another node":      strings.Replace(text, `"node-a"`, `"node-b"`, 1),
			"another pod":       strings.Replace(text, `"pod-1"`, `"pod-2"`, 1),
			"something else":    strings.Replace(text, `"podName":"web-7"`, `"podName":"web-7","activeDeadlineSeconds":5`, 1),
		} {
			if forged == text {
				t.Fatalf("%s: nothing is replaced", what)
			}
			if r := webhooktest.Review(t, handler, admissionv1.Update, forged, before); r.Allowed {
				t.Errorf("%s, %s: admitted", version, what)
			} else if r.Result.Code != 403 {
				t.Errorf("%s, %s: got %+v, want code 403", version, what, r.Result)
			}
		}
		if r := webhooktest.Review(t, handler, admissionv1.Update, before, text); r.Allowed {
			t.Errorf("%s: the facts are taken out again", version)
		}
		other := containerrecreatetest.Recreatable(func(p *corev1.Pod) { p.UID = "pod-2" })
		if r := webhooktest.Review(t, webhooktest.Handler(recreateHandler(t, other).mutate), admissionv1.Update, text, before); r.Allowed {
			t.Errorf("%s: filled from a later pod of that name", version)
		}
	}
}

// CRR-035 (part): clients that read the answer to a creation, as the reference fills it in, found no
// statusContext in it. A caller that is known to be the API server gets all at once, exactly as it would be
// filled in later; nobody else does.
func TestAKnownCallerGetsTheFactsAtOnce(t *testing.T) {
	pod := containerrecreatetest.Recreatable()
	known := admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		return recreateHandler(t, pod).mutate(framework.WithCaller(ctx, true), request)
	})
	const containers = `"podName":"web-7","containers":[{"name":"plain","statusContext":{}},{"name":"exec"},{"name":"http"}]`
	for name, given := range map[string]string{
		"as little as can be": crr("v1beta1", "", "{"+containers+"}"),
		"a strategy":          crr("v1alpha1", `,"labels":null`, `{`+containers+`,"strategy":{"terminationGracePeriodSeconds":3}}`),
		"labels of the client": crr("v1beta1", `,"labels":{"crr.apps.kruise.io/node-name":"forged","crr.apps.kruise.io/pod-uid":"forged"}`,
			`{`+containers+`,"strategy":{"failurePolicy":"Ignore"}}`),
	} {
		early, late := admitted(t, webhooktest.Review(t, known, admissionv1.Create, given, ""), given),
			admitted(t, webhooktest.Review(t, webhooktest.Handler(recreateHandler(t, pod).mutate), admissionv1.Create, given, ""), given)
		request := &appsv1beta1.ContainerRecreateRequest{}
		if err := json.Unmarshal([]byte(late), request); err != nil {
			t.Fatalf("%s: reading %s: %v", name, late, err)
		}
		if !containerrecreate.Unfilled(request) {
			t.Fatalf("%s: without the pod it is filled in at once: %s", name, late)
		}
		_, patch, refusal := containerrecreate.Fill(request, pod, map[string]string{"type": "virtual-kubelet"})
		body, err := json.Marshal(patch)
		if err != nil {
			t.Fatal(err)
		}
		if refusal != nil {
			t.Fatalf("%s: filling in the request: %v", name, refusal)
		}
		want, err := framework.DecodeDocument([]byte(patched(t, late, body)))
		if err != nil {
			t.Fatal(err)
		}
		got, err := framework.DecodeDocument([]byte(early))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-later +at once):\n%s", name, diff)
		}
		if !strings.Contains(early, "c://http") {
			t.Errorf("%s: got %s, want the ID of the container in it", name, early)
		}
		if err := json.Unmarshal([]byte(early), request); err != nil {
			t.Errorf("%s: reading %s: %v", name, early, err)
		} else if containerrecreate.Unfilled(request) {
			t.Errorf("%s: it is filled in once more", name)
		}
	}
}

// CRR-035 (part): somebody who can reach the port of the webhook sends a request for a foreign pod. The
// answer does not contain its containers, its node, how containers are stopped, or other requests for it.
func TestAForgedRequestRevealsNothingOfAPod(t *testing.T) {
	other := &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "nightly-restart",
		Labels: map[string]string{"crr.apps.kruise.io/active": "true", "crr.apps.kruise.io/pod-uid": "pod-1"}}}
	gone := containerrecreatetest.Recreatable(func(p *corev1.Pod) { p.Spec.NodeName = "node-b" })
	for name, pod := range map[string]*corev1.Pod{"a pod": containerrecreatetest.Recreatable(), "a pod whose node is gone": gone} {
		response := webhooktest.Review(t, webhooktest.Handler(recreateHandler(t, pod, other).mutate), admissionv1.Create,
			crr("v1beta1", "", `{"podName":"web-7","containers":[{"name":"plain"},{"name":"exec"},{"name":"http"}]}`), "")
		answer, err := json.Marshal(response)
		if err != nil {
			t.Fatal(err)
		}
		text := string(answer) + string(response.Patch)
		for _, secret := range []string{"c://", "stop", "restartCount", "45", "node-a", "node-b", "virtual", "8080", "nightly-restart"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: the answer has %q: %s", name, secret, text)
			}
		}
	}
}

func TestRecreateRequestsAreRefused(t *testing.T) {
	one := func(more string) string { return `{"podName":"web-7","containers":[{"name":"plain"}]` + more + `}` }
	strategy := func(s string) string { return one(`,"strategy":{` + s + `}`) }
	cases := map[string]struct {
		spec    string
		pod     *corev1.Pod
		code    int32
		message string
	}{
		"CRR-022 no pod named":         {`{"podName":"","containers":[{"name":"plain"}]}`, nil, 400, "podName can not be empty"},
		"CRR-023 no containers":        {`{"podName":"web-7","containers":[]}`, nil, 400, "containers list can not be null"},
		"CRR-024 a short deadline":     {one(`,"activeDeadlineSeconds":2`), nil, 400, "activeDeadlineSeconds can not be less than 3s"},
		"CRR-025 a negative TTL":       {one(`,"ttlSecondsAfterFinished":-1`), nil, 400, "non-negative"},
		"CRR-025 negative termination": {strategy(`"terminationGracePeriodSeconds":-1`), nil, 400, "non-negative"},
		"CRR-025 negative unready":     {strategy(`"unreadyGracePeriodSeconds":-1`), nil, 400, "non-negative"},
		"CRR-025 negative started":     {strategy(`"minStartedSeconds":-1`), nil, 400, "non-negative"},
		"CRR-026 an unknown policy":    {strategy(`"failurePolicy":"Retry"`), nil, 400, "unknown failurePolicy"},
		"CRR-027 no such pod":          {`{"podName":"web-8","containers":[{"name":"plain"}]}`, nil, 400, "no found Pod named web-8"},
		"CRR-028 a finished pod": {one(""), containerrecreatetest.Recreatable(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), 400,
			"inactive Pod"},
		"CRR-028 a pod being deleted": {one(""), containerrecreatetest.Recreatable(func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{"f"}
		}), 400, "inactive Pod"},
		"CRR-028 a finished pod whose sidecars end": {one(""), containerrecreatetest.Recreatable(func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Conditions = corev1.PodSucceeded, []corev1.PodCondition{{Type: "SidecarTerminated", Status: "False"}}
		}), 200, ""},
		"CRR-029 no node": {one(""), containerrecreatetest.Recreatable(func(p *corev1.Pod) { p.Spec.NodeName = "" }), 400, "pending Pod"},
		"CRR-030 the node is gone": {one(""), containerrecreatetest.Recreatable(func(p *corev1.Pod) { p.Spec.NodeName = "node-b" }), 400,
			"no found Node of Pod web-7"},
		"CRR-031 twice": {`{"podName":"web-7","containers":[{"name":"plain"},{"name":"plain"}]}`, nil, 400,
			"can not recreate plain multi times"},
		"CRR-010, CRR-032 own context": {
			`{"podName":"web-7","containers":[{"name":"plain","statusContext":{"containerID":"x","restartCount":0}}]}`, nil, 400,
			"read-only"},
		"CRR-032 own hook": {`{"podName":"web-7","containers":[{"name":"plain","preStop":{"exec":{"command":["a"]}}}]}`, nil, 400, "read-only"},
		"CRR-033 no such container": {`{"podName":"web-7","containers":[{"name":"none"}]}`, nil, 400,
			"container none not found in Pod"},
		"CRR-033 no status": {`{"podName":"web-7","containers":[{"name":"unseen"}]}`, nil, 400,
			"not found unseen containerStatus in Pod Status"},
		"CRR-033 no ID":                      {`{"podName":"web-7","containers":[{"name":"new"}]}`, nil, 400, "initialized"},
		"CRR-034 an ordinary init container": {`{"podName":"web-7","containers":[{"name":"init"}]}`, nil, 400, "init container"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			pod := test.pod
			if pod == nil {
				pod = containerrecreatetest.Recreatable()
			}
			for _, version := range []string{"v1alpha1", "v1beta1"} {
				response := webhooktest.Review(t, webhooktest.Handler(recreateHandler(t, pod).mutate), admissionv1.Create, crr(version, "", test.spec), "")
				if want := test.code == 200; response.Allowed != want {
					t.Errorf("%s: allowed %t, want %t: %+v", version, response.Allowed, want, response.Result)
				} else if !want && response.Result.Code != test.code {
					t.Errorf("%s: refused with %+v, want code %d", version, response.Result, test.code)
				} else if !want && !strings.Contains(response.Result.Message, test.message) {
					t.Errorf("%s: refused with %q, want %q in it", version, response.Result.Message, test.message)
				}
			}
		})
	}
	off := recreateHandler(t, containerrecreatetest.Recreatable())
	handler := webhooktest.Handlers(t, ContainerRecreateRequest, "KruiseDaemon=false", framework.Webhooks{Mutate: off.mutate})["/mutate-apps-kruise-io-containerrecreaterequest"]
	if response := webhooktest.Review(t, handler, admissionv1.Create, crr("v1beta1", "", one("")), ""); response.Allowed {
		t.Error("CRR-020: admitted without the gate")
	} else if response.Result.Code != 403 {
		t.Errorf("CRR-020: refused with %+v, want code 403", response.Result)
	} else if !strings.Contains(response.Result.Message, "KruiseDaemon") {
		t.Errorf("CRR-020: refused with %q, want the gate in it", response.Result.Message)
	}
}

func TestUpdatesOfRecreateRequestsAreJudged(t *testing.T) {
	const labels = `,"labels":{"crr.apps.kruise.io/active":"true","crr.apps.kruise.io/node-name":"n","crr.apps.kruise.io/pod-uid":"u"}`
	spec := `{"podName":"web-7","containers":[{"name":"plain"}]}`
	acquired := `,"annotations":{"crr.apps.kruise.io/unready-acquired":"2026-01-01T10:00:00Z"}`
	cases := map[string]struct {
		version, old, updated string
		message               string
	}{
		"CRR-045 the spec": {"v1beta1", crr("v1beta1", labels, spec),
			crr("v1beta1", labels, strings.Replace(spec, "plain", "exec", 1)), "spec of ContainerRecreateRequest is immutable"},
		"CRR-046 the node": {"v1beta1", crr("v1beta1", labels, spec),
			crr("v1beta1", strings.Replace(labels, `"n"`, `"m"`, 1), spec),
			"not allowed to update immutable label crr.apps.kruise.io/node-name"},
		"CRR-046 the pod removed": {"v1beta1", crr("v1beta1", labels, spec),
			crr("v1beta1", strings.Replace(labels, `,"crr.apps.kruise.io/pod-uid":"u"`, "", 1), spec), "pod-uid"},
		"CRR-046 the pod added": {"v1beta1", crr("v1beta1", "", spec),
			crr("v1beta1", `,"labels":{"crr.apps.kruise.io/pod-uid":""}`, spec), "pod-uid"},
		"CRR-047 the time": {"v1alpha1", crr("v1alpha1", acquired, spec),
			crr("v1alpha1", strings.Replace(acquired, "10:00", "11:00", 1), spec), "not allowed to update immutable annotation"},
		"CRR-047 the time removed": {"v1alpha1", crr("v1alpha1", acquired, spec), crr("v1alpha1", "", spec),
			"not allowed to update immutable annotation"},
		"CRR-047 the time set": {"v1alpha1", crr("v1alpha1", "", spec), crr("v1alpha1", acquired, spec), ""},
		"CRR-048, CRR-141 the active label": {"v1beta1", crr("v1beta1", labels, spec),
			crr("v1beta1", strings.Replace(labels, `"crr.apps.kruise.io/active":"true",`, "", 1), spec), ""},
		"CRR-048 other metadata": {"v1beta1", crr("v1beta1", labels, spec),
			crr("v1beta1", labels+`,"finalizers":["f"],"annotations":{"a":"b"}`, spec), ""},
		"CRR-049 the same spec in other text": {"v1beta1", crr("v1beta1", labels, spec),
			crr("v1beta1", labels, `{"containers":[{"name":"plain"}],"podName":"web-7"}`), ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			response := webhooktest.Review(t, webhooktest.Handler(recreateHandler(t, containerrecreatetest.Recreatable()).mutate), admissionv1.Update, test.updated, test.old)
			if want := test.message == ""; response.Allowed != want {
				t.Errorf("allowed %t, want %t: %+v", response.Allowed, want, response.Result)
			} else if !want && response.Result.Code != 403 {
				t.Errorf("refused with %+v, want code 403", response.Result)
			} else if !want && !strings.Contains(response.Result.Message, test.message) {
				t.Errorf("refused with %q, want %q in it", response.Result.Message, test.message)
			}
			if len(response.Patch) != 0 {
				t.Errorf("patch: got %s, want none", response.Patch)
			}
		})
	}
}

// CRR-020, CRR-140: with the gate off no controller removes the finalizer, so users must be able to.
func TestDeletedRequestsCanBeFreedWithoutTheGate(t *testing.T) {
	const leaving = `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
	spec := `{"podName":"web-7","containers":[{"name":"plain"}]}`
	off := recreateHandler(t, containerrecreatetest.Recreatable())
	handler := webhooktest.Handlers(t, ContainerRecreateRequest, "KruiseDaemon=false", framework.Webhooks{Mutate: off.mutate})["/mutate-apps-kruise-io-containerrecreaterequest"]
	if r := webhooktest.Review(t, handler, admissionv1.Update, crr("v1beta1", leaving, spec),
		crr("v1beta1", leaving+`,"finalizers":["crr.apps.kruise.io/unready-acquired"]`, spec)); !r.Allowed {
		t.Errorf("the last finalizer without the gate: %+v", r.Result)
	}
	if r := webhooktest.Review(t, handler, admissionv1.Update, crr("v1beta1", "", spec), crr("v1beta1", "", spec)); r.Allowed {
		t.Error("an update is allowed")
	}
}

// CRR-164: a second request for a pod gets a warning. CRR-146, CRR-147: unreadable values are named.
func TestRecreateRequestsGetWarnings(t *testing.T) {
	other := func(name string, done bool) *appsv1beta1.ContainerRecreateRequest {
		r := &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
			Labels: map[string]string{"crr.apps.kruise.io/active": "true", "crr.apps.kruise.io/pod-uid": "pod-1"}}}
		if done {
			now := metav1.Now()
			r.Status.CompletionTime = &now
		}
		return r
	}
	handler := webhooktest.Handler(recreateHandler(t, containerrecreatetest.Recreatable(), other("finished", true), other("before", false)).mutate)
	spec := `{"podName":"web-7","containers":[{"name":"plain"}]}`
	response := webhooktest.Review(t, handler, admissionv1.Create,
		crr("v1alpha1", `,"annotations":{"crr.apps.kruise.io/unready-acquired":"noon"}`, spec), "")
	want := []string{"another ContainerRecreateRequest for Pod web-7 is not finished: this one waits for it (kubectl get crr -n shop -l crr.apps.kruise.io/active=true)",
		"annotation crr.apps.kruise.io/unready-acquired cannot be read and means nothing"}
	if diff := cmp.Diff(want, response.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// CRR-164 (part): the number of requests for one pod is bounded. Thousands of them once kept the daemon from
// answering those of other namespaces in time.
func TestRequestsForOnePodAreFew(t *testing.T) {
	var others []runtime.Object
	add := func(name string, finished bool) {
		r := &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
			Labels: map[string]string{"crr.apps.kruise.io/active": "true", "crr.apps.kruise.io/pod-uid": "pod-1"}}}
		if finished {
			now := metav1.Now()
			r.Status.CompletionTime = &now
		}
		others = append(others, r)
	}
	create := func() *admissionv1.AdmissionResponse {
		return webhooktest.Review(t, webhooktest.Handler(recreateHandler(t, containerrecreatetest.Recreatable(), others...).mutate), admissionv1.Create,
			crr("v1beta1", "", `{"podName":"web-7","containers":[{"name":"plain"}]}`), "")
	}
	for i := range 9 {
		add(fmt.Sprintf("open-%d", i), false)
		add(fmt.Sprintf("finished-%d", i), true)
	}
	if r := create(); !r.Allowed {
		t.Errorf("the tenth: %+v", r.Result)
	}
	add("open-9", false)
	if r := create(); r.Allowed {
		t.Error("the eleventh is admitted")
	} else if r.Result.Code != 429 {
		t.Errorf("the eleventh: refused with %+v, want code 429", r.Result)
	} else if !strings.Contains(r.Result.Message, "10 other") {
		t.Errorf("the eleventh: refused with %q, want the 10 other in it", r.Result.Message)
	}
}
