package admission

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionapi "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/pods/sidecarset/inject"
)

// oneSidecar is chosen for every pod, or is why it is refused; a pod without labels is waited for until nobody waits any more.
type oneSidecar struct{ err error }

func (o oneSidecar) Choose(ctx context.Context, p *corev1.Pod, _ string) ([]*inject.Template, error) {
	if len(p.Labels) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	spec := &appsv1beta1.SidecarSetSpec{}
	spec.Containers = []appsv1beta1.SidecarContainer{{}}
	spec.Containers[0].Name, spec.Containers[0].Image = "side", "i"
	template, err := inject.NewTemplate("logs", spec, "", "", "")
	return []*inject.Template{template}, errors.Join(o.err, err)
}

func podRequest(operation admissionapi.Operation, subResource, labels string) admission.Request {
	return admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{Operation: operation, SubResource: subResource, Namespace: "default",
		Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"p","labels":{` + labels + `}},"spec":{"containers":[{"name":"app"}]}}`)}}}
}

// SS-086, SS-120: only the creation of a pod changes it.
func TestOnlyCreationInjects(t *testing.T) {
	handle := mutatePod(newPodChain(false, nil, pod.NewSidecars(oneSidecar{}, false, time.Now)), false)
	for name, test := range map[string]struct {
		request admission.Request
		changed bool
	}{
		"create":                   {podRequest(admissionapi.Create, "", `"a":"b"`), true},
		"update":                   {podRequest(admissionapi.Update, "", `"a":"b"`), false},
		"delete":                   {podRequest(admissionapi.Delete, "", `"a":"b"`), false},
		"connect":                  {podRequest(admissionapi.Connect, "exec", `"a":"b"`), false},
		"create of a sub-resource": {podRequest(admissionapi.Create, "eviction", `"a":"b"`), false},
	} {
		if answer := handle(t.Context(), test.request); !answer.Allowed || (len(answer.Patches) > 0) != test.changed {
			t.Errorf("%s: %+v", name, answer)
		}
	}
}

// SS-094: an internal error refuses the pod with 500; the answer comes while the API server still waits.
func TestInternalErrorsRefuse(t *testing.T) {
	chain := newPodChain(false, nil, pod.NewSidecars(oneSidecar{&inject.Error{SidecarSet: "logs", Err: errors.New("no revision")}}, false, time.Now))
	answer := mutatePod(chain, false)(t.Context(), podRequest(admissionapi.Create, "", `"a":"b"`))
	if answer.Allowed || answer.Result.Code != http.StatusInternalServerError || !strings.Contains(answer.Result.Message, "SidecarSet logs: no revision") {
		t.Errorf("%+v", answer)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if answer := mutatePod(chain, false)(ctx, podRequest(admissionapi.Create, "", "")); answer.Allowed || answer.Result.Code != http.StatusInternalServerError {
		t.Errorf("%+v", answer)
	}
	if podTime > 5*time.Second || podTime >= admissionTime {
		t.Errorf("a pod waits for %s", podTime)
	}
}

// SS-280: without the kind pods are admitted as before.
func TestWithoutSidecarSets(t *testing.T) {
	if answer := mutatePod(newPodChain(false, nil, nil), false)(t.Context(), podRequest(admissionapi.Create, "", `"a":"b"`)); !answer.Allowed || len(answer.Patches) != 0 {
		t.Errorf("%+v", answer)
	}
}

// CRR-087, SS-080, WS-050: the API server asks about pods for the gate, for SidecarSets, for WorkloadSpreads, or about none.
func TestOtherPods(t *testing.T) {
	const gate = "!has(object.spec.readinessGates) || !object.spec.readinessGates.exists(g, g.conditionType == 'KruisePodReady')"
	for name, test := range map[string]struct {
		all                 bool
		sets, spreads, want string
	}{
		"none": {false, "false", "false", "false"}, "gate": {true, "false", "false", gate}, "SidecarSets": {false, "x", "false", "x"},
		"both": {true, "x", "false", gate + " || x"}, "WorkloadSpreads": {false, "false", "y", "y"}, "all": {true, "x", "y", gate + " || x || y"},
	} {
		if got := otherPods(test.all, test.sets, test.spreads); len(got) != 1 || got[0].Expression != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// SS-085, SS-020: the shipped entries for pods leave out the namespaces of the system and of the installation, and no others.
func TestNamespacesThatAreNeverAsked(t *testing.T) {
	text, err := os.ReadFile("../../config/webhook/mutating.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var configuration registrationv1.MutatingWebhookConfiguration
	if err := yaml.Unmarshal(text, &configuration); err != nil {
		t.Fatal(err)
	}
	entries := 0
	for _, hook := range configuration.Webhooks {
		if path := *hook.ClientConfig.Service.Path; path != mutatePodPath && path != mutatePodAllPath {
			continue
		}
		entries++
		selector, err := metav1.LabelSelectorAsSelector(hook.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		asked := map[string]bool{}
		for name, of := range map[string]labels.Set{"kube-system": {"kubernetes.io/metadata.name": "kube-system"}, "install": {"kubernetes.io/metadata.name": "x", "control-plane": "openkruise"},
			"kube-public": {"kubernetes.io/metadata.name": "kube-public"}, "shop": {"kubernetes.io/metadata.name": "shop"}} {
			asked[name] = selector.Matches(of)
		}
		if diff := cmp.Diff(map[string]bool{"kube-system": false, "install": false, "kube-public": true, "shop": true}, asked); diff != "" {
			t.Errorf("%s: %s", hook.Name, diff)
		}
		if operations := hook.Rules[0].Operations; len(operations) != 1 || operations[0] != registrationv1.Create || hook.ReinvocationPolicy != nil {
			t.Errorf("%s: %v", hook.Name, operations)
		}
	}
	if entries != 2 {
		t.Errorf("%d entries", entries)
	}
}
