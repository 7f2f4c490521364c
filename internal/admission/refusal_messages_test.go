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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	clonesetcontroller "github.com/afloat-project/afloat/internal/kinds/cloneset/controller"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
	containerrecreatecontroller "github.com/afloat-project/afloat/internal/kinds/containerrecreate/controller"
	imagepullcontroller "github.com/afloat-project/afloat/internal/kinds/imagepull/controller"
	sidecarsetcontroller "github.com/afloat-project/afloat/internal/kinds/sidecarset/controller"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
)

// A refusal lists all mistakes at once, no matter which part of the manager or of the API server finds them.
func TestARefusalListsAllFaults(t *testing.T) {
	accepting := accepting(t)
	for name, test := range map[string]struct {
		handler   admission.Handler
		operation admissionv1.Operation
		given     string
		old       string
		all       []string // parts of the message
	}{
		"a CloneSet": {webhooktest.Handler(clonesetcontroller.CloneSets(webhooktest.Environment(t, &webhooktest.APIServer{Answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
			metav1.StatusCause{Type: "FieldValueRequired", Field: "template.spec.containers[0].image", Message: "Required value"})})).Validate), admissionv1.Create,
			webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, `"minReadySeconds":-1,"revisionHistoryLimit":-1,"scaleStrategy":{"maxUnavailable":"x","podsToDelete":["a","a"]},"updateStrategy":{"type":"Sometimes","rollingUpdate":{"podUpdatePolicy":"Guess","partition":-1,"scatterStrategy":[{"key":"","value":"v"}]}}`), "",
			[]string{"spec.minReadySeconds", "spec.revisionHistoryLimit", "spec.scaleStrategy.maxUnavailable",
				"spec.scaleStrategy.podsToDelete[1]", "spec.updateStrategy.type",
				"spec.updateStrategy.rollingUpdate.podUpdatePolicy", "spec.updateStrategy.rollingUpdate.partition",
				"spec.updateStrategy.rollingUpdate.scatterStrategy[0].key", "spec.template.spec.containers[0].image"}},
		"a SidecarSet": {webhooktest.Handler(sidecarsetcontroller.SidecarSets(accepting).Validate), admissionv1.Create,
			webhooktest.Object("v1beta1", "SidecarSet", "", `{"containers":[{"name":"c","image":"i","podInjectPolicy":"Beside","transferEnv":[{"envName":"E"}]}],"revisionHistoryLimit":-1,"customVersion":"a b","injectionStrategy":{"revision":{"policy":"Rarely"}},"updateStrategy":{"type":"Sometimes","partition":"x"}}`), "",
			[]string{"spec.selector", "spec.containers[0].podInjectPolicy", "spec.containers[0].transferEnv[0].sourceContainerName",
				"spec.revisionHistoryLimit", "spec.customVersion",
				"spec.injectionStrategy.revision", "spec.updateStrategy.type", "spec.updateStrategy.partition"}},
		"a second WorkloadSpread whose patch mounts a volume that nobody has": {webhooktest.Handler(workloadspreadcontroller.WorkloadSpreads(spreadsOfDeployment(t)).Validate), admissionv1.Create,
			webhooktest.Object("v1beta1", "WorkloadSpread", `,"namespace":"shop"`, `{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"subsets":[{"name":"a","maxReplicas":-1,"patch":{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"nobody","mountPath":"/x"}]}]}}}],"scheduleStrategy":{"type":"Never"}}`), "",
			[]string{"WorkloadSpread first spreads this workload already", "spec.subsets[0].maxReplicas", "spec.scheduleStrategy.type",
				`spec.subsets[0].patch.spec.containers[0].volumeMounts[0].name: Not found`}},
		"a WorkloadSpread of a kind that is not supported": {webhooktest.Handler(workloadspreadcontroller.WorkloadSpreads(accepting).Validate), admissionv1.Create,
			webhooktest.Object("v1beta1", "WorkloadSpread", `,"namespace":"shop"`, `{"targetRef":{"apiVersion":"apps/v1","kind":"DaemonSet","name":""},"subsets":[{"name":""}]}`), "",
			[]string{"apiVersion, kind and name must not be empty", "spec.subsets[0].name"}},
		"an ImagePullJob": {webhooktest.Handler(imagepullcontroller.ImagePullJobs(accepting).Validate), admissionv1.Create,
			webhooktest.Object("v1beta1", "ImagePullJob", "", `{"image":"a b","completionPolicy":{"type":"Once"},"parallelism":"5%","imagePullPolicy":"Never","selector":{"names":["n","n"]}}`), "",
			[]string{"spec.image", "spec.completionPolicy.type", "spec.parallelism", "spec.imagePullPolicy", "spec.selector.names"}},
		"an ImageListPullJob": {webhooktest.Handler(imagepullcontroller.ImageListPullJobs(accepting).Validate), admissionv1.Create,
			webhooktest.Object("v1beta1", "ImageListPullJob", "",
				`{"images":["a b","nginx","docker.io/library/nginx"],"completionPolicy":{},"parallelism":-1}`), "",
			[]string{"spec.images[0]", "spec.images[2]", "spec.parallelism"}},
		"a NodeImage": {webhooktest.Handler(imagepullcontroller.NodeImages(accepting).Validate), admissionv1.Create,
			webhooktest.Object("v1beta1", "NodeImage", "", `{"images":{"A B":{"tags":[]},"a":{"tags":[{"tag":"1","version":-1},{"tag":""}]}}}`), "",
			[]string{"\"A B\" is no name", "spec.images[a].tags[0] of a:1: createdAt", "spec.images[a].tags[0] of a:1: version",
				"spec.images[a].tags[0] of a:1: pullPolicy", "spec.images[a].tags[1]: image a has an empty tag"}},
		"a ContainerRecreateRequest": {webhooktest.Handler(containerrecreatecontroller.ContainerRecreateRequests(accepting).Mutate), admissionv1.Create,
			webhooktest.Object("v1beta1", "ContainerRecreateRequest", `,"namespace":"shop"`, `{"podName":"web-7","containers":[{"name":"plain"},{"name":"plain","ports":[]},{"name":"nobody"},{"name":"init"}],"activeDeadlineSeconds":1,"ttlSecondsAfterFinished":-1,"strategy":{"minStartedSeconds":-1,"failurePolicy":"Retry"}}`), "",
			[]string{"spec.activeDeadlineSeconds", "spec.ttlSecondsAfterFinished", "spec.strategy.minStartedSeconds",
				"unknown failurePolicy", "can not recreate plain multi times", "container nobody not found",
				"container init is an init container"}},
		"a ContainerRecreateRequest for no pod": {webhooktest.Handler(containerrecreatecontroller.ContainerRecreateRequests(accepting).Mutate), admissionv1.Create,
			webhooktest.Object("v1beta1", "ContainerRecreateRequest", `,"namespace":"shop"`, `{"podName":"nobody","containers":[],"activeDeadlineSeconds":1}`), "",
			[]string{"spec.containers", "spec.activeDeadlineSeconds", "no found Pod named nobody"}},
		"an update of a ContainerRecreateRequest": {webhooktest.Handler(containerrecreatecontroller.ContainerRecreateRequests(accepting).Mutate), admissionv1.Update,
			webhooktest.Object("v1beta1", "ContainerRecreateRequest", `,"namespace":"shop","labels":{"crr.apps.kruise.io/pod-uid":"b"}`, `{"podName":"web-8","containers":[]}`),
			webhooktest.Object("v1beta1", "ContainerRecreateRequest", `,"namespace":"shop","labels":{"crr.apps.kruise.io/pod-uid":"a"}`, `{"podName":"web-7","containers":[]}`),
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
func spreadsOfDeployment(t *testing.T) *framework.Environment {
	t.Helper()
	server := &webhooktest.APIServer{Answer: func(template framework.Document) (int, any) {
		for i, item := range template["spec"].(framework.Document)["containers"].([]any) {
			mounts, _ := item.(framework.Document)["volumeMounts"].([]any)
			for j, mount := range mounts {
				return webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad", metav1.StatusCause{Type: "FieldValueNotFound",
					Field:   fmt.Sprintf("template.spec.containers[%d].volumeMounts[%d].name", i, j),
					Message: fmt.Sprintf("Not found: %q", mount.(framework.Document)["name"])})(template)
			}
		}
		return webhooktest.Accepts(template)
	}}
	first := &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "first"}}
	first.Spec.TargetReference = &appsv1beta1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d"}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d"}}
	deployment.Spec.Template.Spec.Containers = append(deployment.Spec.Template.Spec.Containers, corev1.Container{Name: "a", Image: "i"})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion})
	mapper.Add(appsv1.SchemeGroupVersion.WithKind(workloadkind.Deployment.Kind), meta.RESTScopeNamespace)
	e := webhooktest.Environment(t, server, first, deployment)
	workloadspreadcontroller.Listing.Set(e, &workloadspreadcontroller.Listed{})
	e.Mapper = mapper
	return e
}

// The refusal of a kind is complete: it says which kind was given, why it is refused, and what to do.
func TestARefusedKindOfAWorkloadSpreadIsExplained(t *testing.T) {
	given := webhooktest.Object("v1beta1", "WorkloadSpread", `,"namespace":"shop"`, `{"targetRef":{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d"},"subsets":[{"name":"a"}]}`)
	response := webhooktest.Review(t, webhooktest.Handler(workloadspreadcontroller.WorkloadSpreads(accepting(t)).Validate), admissionv1.Create, given, "")
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

// OPS-020: so it does with what becomes part of pods otherwise: sidecars, and patches of subsets.
func TestPrivilegedContainersByOtherWays(t *testing.T) {
	spreads, sets := spreadsOfDeployment(t), accepting(t)
	spread := webhooktest.Object("v1beta1", "WorkloadSpread", `,"namespace":"shop"`, `{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"subsets":[{"name":"a","patch":{"spec":{"containers":[{"name":"a","securityContext":{"privileged":true}}]}}}]}`)
	set := webhooktest.Object("v1beta1", "SidecarSet", "", `{"selector":{"matchLabels":{"a":"b"}},"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}`)
	for _, forbidden := range []bool{false, true} {
		if forbidden {
			spreads.Validator, sets.Validator = framework.Unprivileged(spreads.Validator), framework.Unprivileged(sets.Validator)
		}
		for what, response := range map[string]*admissionv1.AdmissionResponse{
			"spec.subsets[0].patch.spec.containers[0].securityContext.privileged": webhooktest.Review(t, webhooktest.Handler(workloadspreadcontroller.WorkloadSpreads(spreads).Validate), "CREATE", spread, ""),
			"spec.containers[0].securityContext.privileged":                       webhooktest.Review(t, webhooktest.Handler(sidecarsetcontroller.SidecarSets(sets).Validate), "CREATE", set, "")} {
			if told := !response.Allowed && strings.Contains(response.Result.Message, what+": Forbidden"); told != forbidden {
				t.Errorf("%s, forbidden %t: %+v", what, forbidden, response.Result)
			}
		}
	}
}

// accepting is the environment of a cluster that accepts all templates, with one pod whose containers can be
// restarted.
func accepting(t *testing.T) *framework.Environment {
	t.Helper()
	e := webhooktest.Environment(t, &webhooktest.APIServer{Answer: webhooktest.Accepts},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, containerrecreatetest.Recreatable())
	workloadspreadcontroller.Listing.Set(e, &workloadspreadcontroller.Listed{})
	return e
}
