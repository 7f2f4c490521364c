package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

// A refusal lists all mistakes at once, no matter which part of the manager or of the API server finds them.
func TestARefusalListsAllFaults(t *testing.T) {
	judgeless := &webhooktest.APIServer{Answer: webhooktest.Accepts}
	for name, test := range map[string]struct {
		handler   admission.Handler
		operation admissionv1.Operation
		given     string
		old       string
		all       []string // parts of the message
	}{
		"a CloneSet": {webhooktest.Handler(webhooks(t, &webhooktest.APIServer{Answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
			metav1.StatusCause{Type: "FieldValueRequired", Field: "template.spec.containers[0].image", Message: "Required value"})}).
			validate), admissionv1.Create,
			object("v1beta1", webhooktest.GoodTemplate, `"minReadySeconds":-1,"revisionHistoryLimit":-1,"scaleStrategy":{"maxUnavailable":"x","podsToDelete":["a","a"]},"updateStrategy":{"type":"Sometimes","rollingUpdate":{"podUpdatePolicy":"Guess","partition":-1,"scatterStrategy":[{"key":"","value":"v"}]}}`), "",
			[]string{"spec.minReadySeconds", "spec.revisionHistoryLimit", "spec.scaleStrategy.maxUnavailable",
				"spec.scaleStrategy.podsToDelete[1]", "spec.updateStrategy.type",
				"spec.updateStrategy.rollingUpdate.podUpdatePolicy", "spec.updateStrategy.rollingUpdate.partition",
				"spec.updateStrategy.rollingUpdate.scatterStrategy[0].key", "spec.template.spec.containers[0].image"}},
		"a SidecarSet": {webhooktest.Handler(sidecarSetHandler(t, nil, nil).validate), admissionv1.Create,
			of("v1beta1", "SidecarSet", "", `{"containers":[{"name":"c","image":"i","podInjectPolicy":"Beside","transferEnv":[{"envName":"E"}]}],"revisionHistoryLimit":-1,"customVersion":"a b","injectionStrategy":{"revision":{"policy":"Rarely"}},"updateStrategy":{"type":"Sometimes","partition":"x"}}`), "",
			[]string{"spec.selector", "spec.containers[0].podInjectPolicy", "spec.containers[0].transferEnv[0].sourceContainerName",
				"spec.revisionHistoryLimit", "spec.customVersion",
				"spec.injectionStrategy.revision", "spec.updateStrategy.type", "spec.updateStrategy.partition"}},
		"a second WorkloadSpread whose patch mounts a volume that nobody has": {webhooktest.Handler(spreadsOfDeployment(t).validate), admissionv1.Create,
			spreadOf("", `{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"subsets":[{"name":"a","maxReplicas":-1,"patch":{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"nobody","mountPath":"/x"}]}]}}}],"scheduleStrategy":{"type":"Never"}}`), "",
			[]string{"WorkloadSpread first spreads this workload already", "spec.subsets[0].maxReplicas", "spec.scheduleStrategy.type",
				`spec.subsets[0].patch.spec.containers[0].volumeMounts[0].name: Not found`}},
		"a WorkloadSpread of a kind that is not supported": {webhooktest.Handler(workloadSpreads(t, judgeless).validate), admissionv1.Create,
			spreadOf("", `{"targetRef":{"apiVersion":"apps/v1","kind":"DaemonSet","name":""},"subsets":[{"name":""}]}`), "",
			[]string{"apiVersion, kind and name must not be empty", "spec.subsets[0].name"}},
		"an ImagePullJob": {imageHandlers(t, "")[validatePullJobPath], admissionv1.Create,
			of("v1beta1", "ImagePullJob", "", `{"image":"a b","completionPolicy":{"type":"Once"},"parallelism":"5%","imagePullPolicy":"Never","selector":{"names":["n","n"]}}`), "",
			[]string{"spec.image", "spec.completionPolicy.type", "spec.parallelism", "spec.imagePullPolicy", "spec.selector.names"}},
		"an ImageListPullJob": {imageHandlers(t, "")[validatePullListPath], admissionv1.Create,
			of("v1beta1", "ImageListPullJob", "",
				`{"images":["a b","nginx","docker.io/library/nginx"],"completionPolicy":{},"parallelism":-1}`), "",
			[]string{"spec.images[0]", "spec.images[2]", "spec.parallelism"}},
		"a NodeImage": {imageHandlers(t, "")[validateNodeImagePath], admissionv1.Create,
			of("v1beta1", "NodeImage", "", `{"images":{"A B":{"tags":[]},"a":{"tags":[{"tag":"1","version":-1},{"tag":""}]}}}`), "",
			[]string{"\"A B\" is no name", "spec.images[a].tags[0] of a:1: createdAt", "spec.images[a].tags[0] of a:1: version",
				"spec.images[a].tags[0] of a:1: pullPolicy", "spec.images[a].tags[1]: image a has an empty tag"}},
		"a ContainerRecreateRequest": {webhooktest.Handler(recreateHandler(t, recreatable()).mutate), admissionv1.Create,
			crr("v1beta1", "", `{"podName":"web-7","containers":[{"name":"plain"},{"name":"plain","ports":[]},{"name":"nobody"},{"name":"init"}],"activeDeadlineSeconds":1,"ttlSecondsAfterFinished":-1,"strategy":{"minStartedSeconds":-1,"failurePolicy":"Retry"}}`), "",
			[]string{"spec.activeDeadlineSeconds", "spec.ttlSecondsAfterFinished", "spec.strategy.minStartedSeconds",
				"unknown failurePolicy", "can not recreate plain multi times", "container nobody not found",
				"container init is an init container"}},
		"a ContainerRecreateRequest for no pod": {webhooktest.Handler(recreateHandler(t, recreatable()).mutate), admissionv1.Create,
			crr("v1beta1", "", `{"podName":"nobody","containers":[],"activeDeadlineSeconds":1}`), "",
			[]string{"spec.containers", "spec.activeDeadlineSeconds", "no found Pod named nobody"}},
		"an update of a ContainerRecreateRequest": {webhooktest.Handler(recreateHandler(t, recreatable()).mutate), admissionv1.Update,
			crr("v1beta1", `,"labels":{"crr.apps.kruise.io/pod-uid":"b"}`, `{"podName":"web-8","containers":[]}`),
			crr("v1beta1", `,"labels":{"crr.apps.kruise.io/pod-uid":"a"}`, `{"podName":"web-7","containers":[]}`),
			[]string{"spec of ContainerRecreateRequest is immutable", "crr.apps.kruise.io/pod-uid"}},
		"a pod": {
			mutatePod(newPodChain(false, nil, nil,
				pod.NewSidecars(
					oneSidecar{err: field.ErrorList{field.Duplicate(field.NewPath("spec", "containers").Index(0).Child("name"),
						"side")}.ToAggregate()}, false, time.Now)), false), admissionv1.Create,
			`{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"x","env":[{"name":"KRUISE_CONTAINER_PRIORITY","value":"high"}]},{"name":"y","env":[{"name":"KRUISE_CONTAINER_PRIORITY","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}]}}`, "",
			[]string{"spec.containers[0].name: Duplicate", "spec.containers[0].env[0].value", "spec.containers[1].env[0].valueFrom"}},
	} {
		t.Run(name, func(t *testing.T) {
			response := webhooktest.Review(t, test.handler, test.operation, test.given, test.old)
			if response.Allowed {
				t.Fatal("admitted")
			}
			for _, part := range test.all {
				if !strings.Contains(response.Result.Message, part) {
					t.Errorf("does not say %q: %s %q", part, response.Result.Message, response.Warnings)
				}
			}
		})
	}
}

// spreadsOfDeployment is a namespace with Deployment d, which WorkloadSpread first spreads, and an API server
// that knows which volumes there are.
func spreadsOfDeployment(t *testing.T) *workloadSpreadWebhook {
	t.Helper()
	w := workloadSpreads(t, &webhooktest.APIServer{Answer: func(template framework.Document) (int, any) {
		for i, item := range template["spec"].(framework.Document)["containers"].([]any) {
			mounts, _ := item.(framework.Document)["volumeMounts"].([]any)
			for j, mount := range mounts {
				return webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad", metav1.StatusCause{Type: "FieldValueNotFound",
					Field:   fmt.Sprintf("template.spec.containers[%d].volumeMounts[%d].name", i, j),
					Message: fmt.Sprintf("Not found: %q", mount.(framework.Document)["name"])})(template)
			}
		}
		return webhooktest.Accepts(template)
	}})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, appsv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	first := &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first"}}
	first.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d"}}
	deployment.Spec.Template.Spec.Containers = append(deployment.Spec.Template.Spec.Containers, corev1.Container{Name: "a", Image: "i"})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion})
	mapper.Add(appsv1.SchemeGroupVersion.WithKind(workloadkind.Deployment.Kind), meta.RESTScopeNamespace)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(first, deployment).Build()
	w.cached, w.live, w.mapper = c, c, mapper
	return w
}

// The refusal of a kind is complete: it says which kind was given, why it is refused, and what to do.
func TestARefusedKindOfAWorkloadSpreadIsExplained(t *testing.T) {
	given := spreadOf("", `{"targetRef":{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d"},"subsets":[{"name":"a"}]}`)
	response := webhooktest.Review(t, webhooktest.Handler(workloadSpreads(t, &webhooktest.APIServer{Answer: webhooktest.Accepts}).validate), admissionv1.Create, given, "")
	for _, part := range []string{"spec.targetRef", "DaemonSet", `group "apps"`, "not supported",
		"CloneSet, Deployment, ReplicaSet, StatefulSet and Job", "WorkloadSpread_Watch_Custom_Workload_WhiteList",
		"ConfigMap kruise-configuration"} {
		if response.Allowed {
			t.Error("a DaemonSet as target is admitted")
		} else if !strings.Contains(response.Result.Message, part) {
			t.Errorf("refused with %q, want %q in it", response.Result.Message, part)
		}
	}
}
