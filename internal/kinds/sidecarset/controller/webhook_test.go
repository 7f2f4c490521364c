package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
)

// lenient accepts every template.
type lenient struct{}

func (lenient) Complete(_ context.Context, _ string, template framework.Document, _ []string) (framework.Document, error) {
	return template, nil
}

func (lenient) Judge(context.Context, string, framework.Document, []string) ([]metav1.StatusCause, error) {
	return nil, nil
}

func sidecarSetHandler(t *testing.T, cached, live []client.Object) *sidecarSetWebhooks {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	reader := func(objects []client.Object) client.Reader {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	}
	return &sidecarSetWebhooks{judge: lenient{}, namespace: "kruise-system", cached: reader(cached), live: reader(live), native: true,
		nativeInPlace: true}
}

func sidecarSetRequest(version, text string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Name: "a",
		Kind:   metav1.GroupVersionKind{Group: "apps.kruise.io", Version: version, Kind: "SidecarSet"},
		Object: runtime.RawExtension{Raw: []byte(text)}}}
}

// SS-D07: any document is answered, with the error if it is refused.
func TestOddSidecarSets(t *testing.T) {
	for _, spec := range []string{`null`, `{}`, `[]`, `{"containers":[null]}`, `{"containers":[[]]}`, `{"containers":{}}`,
		`{"containers":[{"name":1}]}`, `{"initContainers":[null]}`,
		`{"volumes":null}`, `{"volumes":[null]}`, `{"volumes":{}}`, `{"volumes":[{"name":"v","projected":{"sources":[null]}}]}`,
		`{"selector":null,"namespaceSelector":{}}`,
		`{"selector":{"matchExpressions":[{"key":"a","operator":"Like"}]},"containers":[{"name":"c","image":"i"}]}`,
		`{"containers":[{"name":"c","image":"i","transferEnv":[null,{"sourceContainerNameFrom":{}}],"ports":[null],"env":[null,{"name":"A","valueFrom":{}}]}]}`,
		`{"containers":[{"name":"c","image":"i","resourcesPolicy":{}}]}`,
		`{"containers":[{"name":"c","image":"i","resourcesPolicy":{"resourcesExpr":{"limits":{"cpu":"-"}}}}]}`,
		`{"containers":[{"name":"c","image":"i","livenessProbe":{"httpGet":null},"lifecycle":{"preStop":null},"upgradeStrategy":null,"shareVolumePolicy":null}]}`,
		`{"updateStrategy":{"partition":"x","maxUnavailable":"y","scatterStrategy":[{}],"priorityStrategy":{"weightPriority":[{}]}}}`,
		`{"patchPodMetadata":[null,{"annotations":null},{"annotations":{"":""},"patchPolicy":"MergePatchJson"}]}`,
		`{"injectionStrategy":{"revision":{}}}`,
		`{"injectionStrategy":{"revision":{"customVersion":"not a label!"}}}`,
		`{"injectionStrategy":{"revision":{"revisionName":"a/b"}}}`} {
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			t.Run(version+" "+spec, func(t *testing.T) {
				text := `{"apiVersion":"apps.kruise.io/` + version + `","kind":"SidecarSet","metadata":{"name":"a"},"spec":` + spec + `}`
				w := sidecarSetHandler(t, nil, nil)
				request := sidecarSetRequest(version, text)
				if answer := w.mutate(t.Context(), request); answer.Allowed {
					operations, err := json.Marshal(answer.Patches)
					if err != nil {
						t.Fatal(err)
					}
					patch, err := jsonpatch.DecodePatch(operations)
					if err != nil {
						t.Fatal(err)
					}
					if request.Object.Raw, err = patch.Apply(request.Object.Raw); err != nil {
						t.Fatalf("applying the patch %s: %v", operations, err)
					}
				}
				if answer := w.validate(t.Context(), request); answer.Allowed {
					t.Error("admitted")
				} else if answer.Result.Code != http.StatusUnprocessableEntity {
					t.Errorf("refused with %+v, want code 422", answer.Result)
				}
			})
		}
	}
}

// SS-030: a refusal is 422 and lists all errors of all fields, like the API server's own, in the version of
// the request.
func TestRefusedSidecarSetsListAllErrors(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		text := `{"apiVersion":"apps.kruise.io/` + version +
			`","kind":"SidecarSet","metadata":{"name":"a.b"},"spec":{"updateStrategy":{"type":"Sometimes"},"containers":[]}}`
		answer := sidecarSetHandler(t, nil, nil).validate(t.Context(), sidecarSetRequest(version, text))
		if answer.Allowed {
			t.Fatalf("a bad SidecarSet in %s is admitted", version)
		}
		if answer.Result.Code != http.StatusUnprocessableEntity {
			t.Fatalf("a bad SidecarSet in %s: refused with %+v, want code 422", version, answer.Result)
		}
		if answer.Result.Reason != metav1.StatusReasonInvalid {
			t.Fatalf("a bad SidecarSet in %s: refused with %+v, want reason Invalid", version, answer.Result)
		}
		var fields []string
		for _, cause := range answer.Result.Details.Causes {
			fields = append(fields, cause.Field)
			if told := cause.Field + ": " + cause.Message; !strings.Contains(answer.Result.Message, told) {
				t.Errorf("%q is not in %q", told, answer.Result.Message)
			}
		}
		for field, words := range map[string]string{"metadata.name": "Invalid value", "spec.selector": "no selector defined for SidecarSet",
			"spec": "no initContainer or container defined for SidecarSet", "spec.updateStrategy.type": "Unsupported value"} {
			of := func(f string) bool { return f == field || strings.HasPrefix(f, field+".") }
			if !slices.ContainsFunc(fields, of) {
				t.Errorf("refused fields: got %q, want %s", fields, field)
			}
			if !strings.Contains(answer.Result.Message, words) {
				t.Errorf("%s: refused with %q, want %q in it", field, answer.Result.Message, words)
			}
		}
	}
}

// SS-042: if the API server cannot look up a revision, the SidecarSet is not called invalid: the user may try
// again.
func TestARevisionThatCannotBeLookedForIsNotInvalid(t *testing.T) {
	const text = `{"apiVersion":"apps.kruise.io/v1beta1","kind":"SidecarSet","metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},"updateStrategy":{"type":"NotUpdate"},"injectionStrategy":{"revision":{%s}},
		"containers":[{"name":"c","image":"i","podInjectPolicy":"BeforeAppContainer","shareVolumePolicy":{"type":"disabled"},"upgradeStrategy":{"upgradeType":"ColdUpgrade"}}]}}`
	for _, revision := range []string{`"revisionName":"r"`, `"customVersion":"v"`} {
		for away, want := range map[bool]int32{false: http.StatusUnprocessableEntity, true: http.StatusInternalServerError} {
			w := sidecarSetHandler(t, nil, nil)
			w.live = interceptor.NewClient(w.live.(client.WithWatch), interceptor.Funcs{ //nolint:forcetypeassert // fakes watch
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					options ...client.GetOption) error {
					if away {
						return errors.New("etcdserver: request timed out")
					}
					return c.Get(ctx, key, o, options...)
				},
				List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, options ...client.ListOption) error {
					if away {
						return errors.New("etcdserver: request timed out")
					}
					return c.List(ctx, l, options...)
				}})
			answer := w.validate(t.Context(), sidecarSetRequest("v1beta1", fmt.Sprintf(text, revision)))
			if answer.Allowed {
				t.Errorf("%s, the API server is away %t: admitted", revision, away)
			} else if answer.Result.Code != want {
				t.Errorf("%s, the API server is away %t: refused with %+v, want code %d", revision, away, answer.Result,
					want)
			}
		}
	}
}

// SS-070: a base that the same command created a moment ago is found although the caches do not show it yet.
func TestBaseThatTheCacheDoesNotShow(t *testing.T) {
	base := &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "base"}}
	canaryOfBase := base.DeepCopy()
	canaryOfBase.Annotations = map[string]string{pub.SidecarSetCanary: "true", pub.SidecarSetBase: "other"}
	const text = `{"apiVersion":"apps.kruise.io/v1beta1","kind":"SidecarSet","metadata":{"name":"a","annotations":{"apps.kruise.io/sidecarset-canary":"true","apps.kruise.io/sidecarset-base":"base"}},
		"spec":{"selector":{"matchLabels":{"a":"b"}},"updateStrategy":{"type":"NotUpdate"},
		"containers":[{"name":"c","image":"i","podInjectPolicy":"BeforeAppContainer","shareVolumePolicy":{"type":"disabled"},"upgradeStrategy":{"upgradeType":"ColdUpgrade"}}]}}`
	for name, test := range map[string]struct {
		cached, live []client.Object
		want         string
	}{
		"cached":                  {[]client.Object{base}, nil, ""},
		"live":                    {nil, []client.Object{base}, ""},
		"live, and itself canary": {nil, []client.Object{canaryOfBase}, "base sidecarSet cannot be canary"},
		"nowhere":                 {nil, nil, "fetch base sidecarSet[base] failed"},
	} {
		t.Run(name, func(t *testing.T) {
			answer := sidecarSetHandler(t, test.cached, test.live).validate(t.Context(), sidecarSetRequest("v1beta1", text))
			if want := test.want == ""; answer.Allowed != want {
				t.Errorf("allowed %t, want %t: %+v", answer.Allowed, want, answer.Result)
			} else if !want && !strings.Contains(answer.Result.Message, test.want) {
				t.Errorf("refused with %q, want %q in it", answer.Result.Message, test.want)
			}
		})
	}
}

// OPS-013 (part): what SidecarSets may set on pods is read from its key of ConfigMap kruise-configuration in
// the namespace of the manager; other keys do not matter. Without the ConfigMap, or the key, nothing may be
// set.
func TestTheConfigurationOfTheInstallation(t *testing.T) {
	const rules = `{"rules":[{"allowedAnnotationKeyExprs":["^ours/"]}]}`
	config := func(namespace, name string, data map[string]string) []client.Object {
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}}
	}
	set := &appsv1beta1.SidecarSet{}
	if err := json.Unmarshal([]byte(`{"spec":{"patchPodMetadata":[{"annotations":{"ours/k":"v"}}]}}`), set); err != nil ||
		len(set.Spec.PatchPodMetadata) != 1 {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		live    []client.Object
		allowed bool
	}{
		"its key": {config("kruise-system", "kruise-configuration",
			map[string]string{"SidecarSet_PatchPodMetadata_WhiteList": rules}), true},
		"its key among others": {config("kruise-system", "kruise-configuration",
			map[string]string{"SidecarSet_PatchPodMetadata_WhiteList": rules, "PPS_Watch_Custom_Workload_WhiteList": "{",
				"WorkloadSpread_Watch_Custom_Workload_WhiteList": "{"}), true},
		"other keys": {config("kruise-system", "kruise-configuration",
			map[string]string{"PPS_Watch_Custom_Workload_WhiteList": rules, "WorkloadSpread_Watch_Custom_Workload_WhiteList": rules}),
			false},
		"no keys":      {config("kruise-system", "kruise-configuration", nil), false},
		"no ConfigMap": {nil, false},
		"of another namespace": {config("default", "kruise-configuration",
			map[string]string{"SidecarSet_PatchPodMetadata_WhiteList": rules}), false},
		"a ConfigMap of that sort": {config("kruise-system", "configuration",
			map[string]string{"SidecarSet_PatchPodMetadata_WhiteList": rules}), false},
	} {
		errs := sidecarSetHandler(t, nil, test.live).whiteList(t.Context(), set)
		if allowed := len(errs) == 0; allowed != test.allowed {
			t.Errorf("%s: allowed %t, want %t: %v", name, allowed, test.allowed, errs)
		} else if !allowed && !strings.Contains(errs.ToAggregate().Error(), "whitelist not found") {
			t.Errorf("%s: refused with %v, want the missing list in it", name, errs)
		}
	}
}
