package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/admission/pod"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// markersOf are PodProbeMarkers that can be read, or not.
func markersOf(t *testing.T, err error, markers ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(markers...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		}}).Build()
}

// PPM-110, PPM-112: what a pod gets that is created, for whatever node: the probes of all PodProbeMarkers
// that select it, without their policies, and the sorted names of these. Nothing else gets anything, nothing
// is too long to be stored, and no pod is refused because PodProbeMarkers cannot be read.
func TestServerlessPodsTakeProbesAlong(t *testing.T) {
	const web = `{"metadata":{"name":"web-0","labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"a"}]}}`
	z := given.Marker("z", given.Probe("warm"), given.Probe("unnamed", func(p *appsv1alpha1.PodContainerProbe) { p.PodConditionType = "" }))
	b := given.Marker("b", given.Probe("idle", func(p *appsv1alpha1.PodContainerProbe) { p.Probe.PeriodSeconds = 5 }))
	elsewhere := given.Marker("elsewhere", given.Probe("other"))
	elsewhere.Namespace = "other"
	long := func(name string) *appsv1alpha1.PodProbeMarker {
		return given.Marker(name, given.Probe(name, func(p *appsv1alpha1.PodContainerProbe) { p.Probe = given.Exec(strings.Repeat("x", 30<<10)) }))
	}
	create := admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: "shop", Object: runtime.RawExtension{Raw: []byte(web)}}
	update, eviction, db := create, create, create
	update.Operation = admissionv1.Update
	eviction.SubResource = "eviction"
	db.Object.Raw = []byte(strings.Replace(web, `"app":"web"`, `"app":"db"`, 1))
	const entry = `{"name":"%s","containerName":"app","probe":{"exec":{"command":["/%s"]}%s},"podConditionType":"example.com/%s"}`
	both := map[string]any{"kruise.io/podprobe": "[" + fmt.Sprintf(entry, "idle", "idle", `,"periodSeconds":5`, "idle") + "," + fmt.Sprintf(entry, "warm", "warm", "", "warm") + "]",
		"kruise.io/podprobemarker-list": "b,z"}
	for name, test := range map[string]struct {
		request  admissionv1.AdmissionRequest
		markers  client.Reader
		want     map[string]any
		warnings int
	}{
		"a pod is created":       {create, markersOf(t, nil, z, b, elsewhere), both, 0},
		"one that none selects":  {db, markersOf(t, nil, z, b, elsewhere), nil, 0},
		"there are none":         {create, markersOf(t, nil), nil, 0},
		"a pod is changed":       {update, markersOf(t, nil, z, b), nil, 0},
		"a pod is evicted":       {eviction, markersOf(t, nil, z, b), nil, 0},
		"they cannot be read":    {create, markersOf(t, errors.New("no cache")), nil, 1},
		"what does not fit":      {create, markersOf(t, nil, long("one"), long("two"), long("three"), b), nil, 0},
		"only the ones that fit": {create, markersOf(t, nil, b, given.Marker("a", given.Probe("x", func(p *appsv1alpha1.PodContainerProbe) { p.Probe = given.Exec(strings.Repeat("x", 70<<10)) })), z), both, 0},
	} {
		answer := mutatePod(pod.NewChain(pod.Travelling(test.markers)), false)(t.Context(), admission.Request{AdmissionRequest: test.request})
		if !answer.Allowed {
			t.Errorf("%s: %+v", name, answer.Result)
		}
		if len(answer.Warnings) != test.warnings {
			t.Errorf("%s: got warnings %q, want %d", name, answer.Warnings, test.warnings)
		}
		var got map[string]any
		for _, change := range answer.Patches {
			if change.Path != "/metadata/annotations" {
				t.Errorf("%s: got the change %+v, want one of the annotations", name, change)
			}
			if got != nil {
				t.Errorf("%s: got a second change: %+v", name, change)
			}
			got, _ = change.Value.(map[string]any)
		}
		if name == "what does not fit" {
			text, _ := got["kruise.io/podprobe"].(string)
			if len(text) > 65<<10 {
				t.Errorf("%s: got %d bytes of probes, want %d at most", name, len(text), 65<<10)
			}
			if !strings.Contains(text, `"idle"`) {
				t.Errorf("%s: the probe that fits is not among %.500s", name, text)
			}
			if list := got["kruise.io/podprobemarker-list"]; list != "b,one,three" {
				t.Errorf("%s: got markers %v, want b,one,three", name, list)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", name, diff)
		}
	}
}
