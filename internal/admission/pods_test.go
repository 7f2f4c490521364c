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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/framework"
	persistentpodstatecontroller "github.com/afloat-project/afloat/internal/kinds/persistentpodstate/controller"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/inject"
)

// oneSidecar is chosen for every pod; with err every pod is refused. For a pod without labels it waits until
// the request is cancelled.
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
	return admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{Operation: operation, SubResource: subResource,
		Namespace: "default",
		Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"p","labels":{` + labels +
			`}},"spec":{"containers":[{"name":"app"}]}}`)}}}
}

// SS-086, SS-120: only the creation of a pod changes it.
func TestOnlyCreationInjects(t *testing.T) {
	handle := mutatePod(newPodChain(false, nil, nil, pod.NewSidecars(oneSidecar{}, false, time.Now)), false)
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
		if answer := handle(t.Context(), test.request); !answer.Allowed {
			t.Errorf("%s: %+v", name, answer.Result)
		} else if changed := len(answer.Patches) > 0; changed != test.changed {
			t.Errorf("%s: the pod is changed: got %t, want %t: %v", name, changed, test.changed, answer.Patches)
		}
	}
}

// SS-094: an internal error refuses the pod with 500; the answer comes while the API server still waits.
func TestInternalErrorsRefuse(t *testing.T) {
	chain := newPodChain(false, nil, nil, pod.NewSidecars(oneSidecar{&inject.Error{SidecarSet: "logs", Err: errors.New("no revision")}}, false,
		time.Now))
	answer := mutatePod(chain, false)(t.Context(), podRequest(admissionapi.Create, "", `"a":"b"`))
	if answer.Allowed {
		t.Error("a pod without its sidecar is admitted")
	} else if answer.Result.Code != http.StatusInternalServerError {
		t.Errorf("a pod without its sidecar: refused with %+v, want code 500", answer.Result)
	} else if !strings.Contains(answer.Result.Message, "SidecarSet logs: no revision") {
		t.Errorf("a pod without its sidecar: refused with %q, want the SidecarSet in it", answer.Result.Message)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if answer := mutatePod(chain, false)(ctx, podRequest(admissionapi.Create, "", "")); answer.Allowed {
		t.Error("a pod whose time is over is admitted")
	} else if answer.Result.Code != http.StatusInternalServerError {
		t.Errorf("a pod whose time is over: refused with %+v, want code 500", answer.Result)
	}
	if podTime > 5*time.Second {
		t.Errorf("a pod waits for %s, want 5s at most", podTime)
	}
	if podTime >= framework.AdmissionTime {
		t.Errorf("a pod waits for %s, want less than the %s of all admissions", podTime, framework.AdmissionTime)
	}
}

// SS-280: pods are accepted unchanged if the kind does not exist.
func TestWithoutSidecarSets(t *testing.T) {
	if answer := mutatePod(newPodChain(false, nil, nil, nil), false)(t.Context(),
		podRequest(admissionapi.Create, "", `"a":"b"`)); !answer.Allowed {
		t.Errorf("a pod without SidecarSets: %+v", answer.Result)
	} else if len(answer.Patches) != 0 {
		t.Errorf("a pod without SidecarSets: got %v, want no change", answer.Patches)
	}
}

// CRR-087, SS-080, WS-050, PUB-071 (part): the API server sends pods for the readiness gate, for SidecarSets,
// for WorkloadSpreads, or no pods.
func TestOtherPods(t *testing.T) {
	const gate = "!has(object.spec.readinessGates) || !object.spec.readinessGates.exists(g, g.conditionType == 'KruisePodReady')"
	for name, test := range map[string]struct {
		all                                 bool
		sets, spreads, states, probes, want string
	}{
		"none": {false, "false", "false", "false", "false", "false"}, "gate": {true, "false", "false", "false", "false", gate},
		"SidecarSets": {false, "x", "false", "false", "false", "x"}, "both": {true, "x", "false", "false", "false", gate + " || x"},
		"WorkloadSpreads": {false, "false", "y", "false", "false", "y"}, "PersistentPodStates": {false, "false", "false", "z", "false", "z"},
		"probes": {false, "x", "false", "false", "p", "x || p"}, "all": {true, "x", "y", "z", "p", gate + " || x || y || z || p"},
	} {
		got := otherPods(test.all, condition("of-sidecarsets", test.sets), condition("of-workloadspreads", test.spreads),
			condition("of-persistentpodstates", test.states), condition("of-probes", test.probes))
		if len(got) != 1 {
			t.Errorf("%s: got conditions %v, want one", name, got)
		} else if got[0].Expression != test.want {
			t.Errorf("%s: got the condition %s, want %s", name, got[0].Expression, test.want)
		} else if len(got[0].Name) > 63 {
			t.Errorf("%s: the name of the condition is longer than 63: %s", name, got[0].Name)
		}
	}
}

// SS-085, SS-020, WS-188, PUB-077: the shipped entries for pods leave out the namespaces of the system and of
// the installation, and no others.
func TestNamespacesThatAreNeverAsked(t *testing.T) {
	var hooks []registrationv1.MutatingWebhook // both kinds are alike in what is compared
	for _, file := range []string{"mutating", "validating"} {
		text, err := os.ReadFile("../../config/webhook/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var configuration registrationv1.MutatingWebhookConfiguration
		if err := yaml.Unmarshal(text, &configuration); err != nil {
			t.Fatal(err)
		}
		hooks = append(hooks, configuration.Webhooks...)
	}
	entries := 0
	for _, hook := range hooks {
		path := *hook.ClientConfig.Service.Path
		if path != mutatePodPath && path != validatePodPath {
			continue
		}
		entries++
		selector, err := metav1.LabelSelectorAsSelector(hook.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		asked := map[string]bool{}
		for name, of := range map[string]labels.Set{"kube-system": {"kubernetes.io/metadata.name": "kube-system"},
			"install":     {"kubernetes.io/metadata.name": "x", "control-plane": "openkruise"},
			"kube-public": {"kubernetes.io/metadata.name": "kube-public"}, "shop": {"kubernetes.io/metadata.name": "shop"}} {
			asked[name] = selector.Matches(of)
		}
		if diff := cmp.Diff(map[string]bool{"kube-system": false, "install": false, "kube-public": true, "shop": true}, asked); diff != "" {
			t.Errorf("%s: namespaces that are asked for (-want +got):\n%s", hook.Name, diff)
		}
		operations := hook.Rules[0].Operations
		if path != validatePodPath && (len(operations) != 1 || operations[0] != registrationv1.Create) {
			t.Errorf("%s: operations: got %v, want CREATE alone", hook.Name, operations)
		}
		if hook.ReinvocationPolicy != nil {
			t.Errorf("%s: reinvocation policy: got %s, want none", hook.Name, *hook.ReinvocationPolicy)
		}
	}
	if entries != 3 { // others are derived from these
		t.Errorf("%d entries", entries)
	}
}

// podReader has one pod.
type podReader struct {
	client.Reader
	err   error
	asked []string
}

func (r *podReader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	r.asked = append(r.asked, key.String())
	if key.Name == "absent" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	object.SetName(key.Name)
	object.SetNamespace(key.Namespace)
	object.SetUID("of-" + types.UID(key.Name))
	return r.err
}

// WS-100, WS-101, WS-104: only deletions and evictions of pods are checked; dry runs are marked as such. An
// eviction is for the pod with its name, and for none if that is gone.
func TestRemovalsOfPods(t *testing.T) {
	const old, eviction = `{"metadata":{"name":"p","namespace":"d"}}`, `{"metadata":{"name":"p"}`
	request := func(operation admissionapi.Operation, subResource, name, object, oldObject, options string, dry bool) admission.Request {
		return admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{Operation: operation, SubResource: subResource,
			Namespace: "d", Name: name, DryRun: &dry,
			Object: runtime.RawExtension{Raw: []byte(object)}, OldObject: runtime.RawExtension{Raw: []byte(oldObject)},
			Options: runtime.RawExtension{Raw: []byte(options)}}}
	}
	for name, test := range map[string]struct {
		request admission.Request
		err     error
		// want is the removal that is checked; read is the pod that is read.
		want, read string
		code       int32
		// guarded: the namespace has budgets.
		guarded bool
	}{
		"deletion": {request(admissionapi.Delete, "", "p", "", old, `{}`, false), nil, "d/p", "", 200, false},
		"deletion where there are budgets": {request(admissionapi.Delete, "", "p", "", `{"metadata":{"name":"p","namespace":"d","uid":"of-p"}}`,
			`{}`, false), nil, "d/p", "d/p", 200, true},
		"deletion of one of a collection": {request(admissionapi.Delete, "", "", "", `{"metadata":{"name":"p","namespace":"d","uid":"of-p"}}`,
			`{}`, false), nil, "d/p", "d/p", 200, true},
		"a made up deletion": {request(admissionapi.Delete, "", "absent", "",
			`{"metadata":{"name":"absent","namespace":"d","uid":"x"}}`, `{}`, false), nil, "", "d/absent", 200, true},
		"a made up deletion of another pod of the name": {request(admissionapi.Delete, "", "p", "",
			`{"metadata":{"name":"p","namespace":"d","uid":"x"}}`, `{}`, false), nil, "", "d/p", 200, true},
		"deletion of what cannot be read": {request(admissionapi.Delete, "", "p", "", `{"metadata":{"name":"p","namespace":"d","uid":"of-p"}}`,
			`{}`, false), errors.New("no answer"), "", "d/p", 500, true},
		"dry deletion": {request(admissionapi.Delete, "", "p", "", old, `{}`, true), nil, "d/p dry", "", 200, false},
		"dry deletion by its options": {request(admissionapi.Delete, "", "p", "", old, `{"dryRun":["All"]}`, false), nil,
			"d/p dry", "", 200, false},
		"deletion of a collection":         {request(admissionapi.Delete, "", "", "", "", `{}`, false), nil, "", "", 200, false},
		"deletion of something unreadable": {request(admissionapi.Delete, "", "p", "", "{", `{}`, false), nil, "", "", 400, false},
		"eviction": {request(admissionapi.Create, "eviction", "p", eviction+`}`, "", `{}`, false), nil,
			"d/p EVICT", "d/p", 200, false},
		"eviction without name": {request(admissionapi.Create, "eviction", "", eviction+`}`, "", `{}`, false), nil,
			"d/p EVICT", "d/p", 200, false},
		"dry eviction": {request(admissionapi.Create, "eviction", "p",
			eviction+`,"deleteOptions":{"dryRun":["All"]}}`, "", `{}`, false), nil, "d/p EVICT dry", "d/p", 200, false},
		"dry eviction by its options": {request(admissionapi.Create, "eviction", "p", eviction+`}`, "", `{"dryRun":["All"]}`,
			false), nil, "d/p EVICT dry", "d/p", 200, false},
		"eviction of what is gone": {request(admissionapi.Create, "eviction", "absent", eviction+`}`, "", `{}`, false), nil,
			"", "d/absent", 200, false},
		"unreadable eviction": {request(admissionapi.Create, "eviction", "p", `{`, "", `{}`, false), nil, "", "", 400, false},
		"WS-106 eviction of what cannot be read": {request(admissionapi.Create, "eviction", "p", eviction+`}`, "", `{}`, false),
			errors.New("no answer"), "", "d/p", 200, false},
		"PUB-081 eviction of what cannot be read": {request(admissionapi.Create, "eviction", "p", eviction+`}`, "", `{}`, false),
			errors.New("no answer"), "", "d/p", 500, true},
		"PUB-082 update of the spec": {request(admissionapi.Update, "", "p", `{"metadata":{"name":"p","namespace":"d","uid":"of-p"},"spec":{"x":1}}`, `{"metadata":{"name":"p","namespace":"d","uid":"of-p"}}`,
			`{}`, false), nil, "d/p UPDATE", "d/p", 200, true},
		"PUB-084 resize": {request(admissionapi.Update, "resize", "p",
			`{"metadata":{"name":"p","namespace":"d","uid":"of-p"},"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}]}}`,
			`{"metadata":{"name":"p","namespace":"d","uid":"of-p"},"spec":{"containers":[{"name":"a"}]}}`, `{}`, false), nil, "d/p RESIZE", "d/p", 200, true},
		"an eviction that is refused": {request(admissionapi.Create, "eviction", "needed", eviction+`}`, "", `{}`, false), nil,
			"d/needed EVICT", "d/needed", 429, true},
		"creation":                   {request(admissionapi.Create, "", "p", old, "", `{}`, false), nil, "", "", 200, false},
		"update":                     {request(admissionapi.Update, "", "p", old, old, `{}`, false), nil, "", "", 200, false},
		"deletion of a sub-resource": {request(admissionapi.Delete, "x", "p", "", old, `{}`, false), nil, "", "", 200, false},
		"refused": {request(admissionapi.Delete, "", "p", "",
			`{"metadata":{"name":"needed","namespace":"d"}}`, `{}`, false), nil, "d/needed", "", 403, false},
	} {
		t.Run(name, func(t *testing.T) {
			checked := ""
			live := &podReader{err: test.err}
			chain := pod.NewDisruptions(pod.Check{Name: "test", Apply: func(_ context.Context, r *pod.Disruption) error {
				checked = r.Pod.Namespace + "/" + r.Pod.Name
				if r.By != policyv1beta1.Delete {
					checked += " " + string(r.By)
				}
				if r.DryRun {
					checked += " dry"
				}
				if r.Pod.Name == "needed" {
					return &pod.Refused{Message: "it is needed"}
				}
				return nil
			}})
			answer := validatePod(chain, live, func(string) bool { return test.guarded })(t.Context(), test.request)
			if checked != test.want {
				t.Errorf("checked: got %q, want %q", checked, test.want)
			}
			if read := strings.Join(live.asked, " "); read != test.read {
				t.Errorf("read: got %q, want %q", read, test.read)
			}
			if want := test.code == 200; answer.Allowed != want {
				t.Errorf("allowed %t, want %t: %+v", answer.Allowed, want, answer.Result)
			}
			if answer.Result.Code != test.code {
				t.Errorf("code: got %+v, want %d", answer.Result, test.code)
			}
		})
	}
}

// WS-050: a request is a dry run also if only its options say so.
func TestTriedOnly(t *testing.T) {
	for options, want := range map[string]bool{``: false, `{}`: false, `{"dryRun":[]}`: false, `{"dryRun":["All"]}`: true,
		`nonsense`: false} {
		request := admission.Request{AdmissionRequest: admissionapi.AdmissionRequest{Options: runtime.RawExtension{Raw: []byte(options)}}}
		if got := framework.IsDryRun(&request); got != want {
			t.Errorf("options %q are a dry run: got %t, want %t", options, got, want)
		}
	}
}

// PPS-096 (part): without gate PodWebhook no pod is changed; what is recorded does not ask for the gate, see
// TestPersistentPodStatesNeedNoGate.
func TestWithoutPodWebhookNoPodIsBroughtBack(t *testing.T) {
	options := ofRegistry(t, "PodWebhook=false")
	options.States = &persistentpodstatecontroller.Watch{}
	chain, disruptions, err := options.podWebhooks(nil, nil)
	if chain != nil {
		t.Errorf("what changes pods without the gate: got %v, want nothing", chain)
	}
	if disruptions != nil {
		t.Errorf("what checks disruptions without the gate: got %v, want nothing", disruptions)
	}
	if err != nil {
		t.Errorf("the webhooks of pods without the gate: %v", err)
	}
	handlers := options.handlers(&framework.Environment{Gates: options.Gates, Protect: options.protects}, nil, nil)
	for _, path := range []string{mutatePodPath, mutatePodRecentPath} {
		if handlers[path] != nil {
			t.Errorf("without the gate pods are changed at %s", path)
		}
	}
}
