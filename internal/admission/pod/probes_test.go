package pod

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// markers reads PodProbeMarkers of one namespace.
type markers struct {
	client.Reader
	all []appsv1alpha1.PodProbeMarker
	err error
}

func (m markers) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	if (&client.ListOptions{}).ApplyOptions(options).Namespace == "shop" {
		into.(*appsv1alpha1.PodProbeMarkerList).Items = m.all
	}
	return m.err
}

// A pod that is created takes probes along, once, and whoever creates it is warned if they cannot be
// read.
func TestPodsTakeProbesAlong(t *testing.T) {
	all := markers{all: []appsv1alpha1.PodProbeMarker{*given.Marker("m", given.Probe("idle"))}}
	create := func(reader client.Reader, namespace, metadata string) (string, []string) {
		raw := []byte(`{"metadata":` + metadata + `,"spec":{"containers":[{"name":"app","image":"a"}]}}`)
		changes, warnings, err := NewChain(Travelling(reader)).Mutate(t.Context(), Request{Raw: raw, Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(changes)
		if err != nil {
			t.Fatal(err)
		}
		return string(text), warnings
	}
	got, _ := create(all, "shop", `{"labels":{"app":"web"}}`)
	for _, part := range []string{`"path":"/metadata/annotations"`, `"kruise.io/podprobemarker-list":"m"`,
		`\"podConditionType\":\"example.com/idle\"`} {
		if !strings.Contains(got, part) {
			t.Errorf("changes: got %s, want %s in them", got, part)
		}
	}
	if strings.Contains(got, "markerPolicy") {
		t.Errorf("changes: got %s, want no markerPolicy in them", got)
	}
	annotated := `{"labels":{"app":"web"},"annotations":{"a":"b"}}`
	if got, _ := create(all, "shop", annotated); !strings.Contains(got,
		`"path":"/metadata/annotations/kruise.io~1podprobe"`) {
		t.Errorf("changes of a pod with annotations: got %s, want one annotation added", got)
	}
	for _, none := range [][2]string{{"other", `{"labels":{"app":"web"}}`}, {"shop", `{"labels":{"app":"db"}}`}} {
		got, warnings := create(all, none[0], none[1])
		if got != "null" {
			t.Errorf("changes of %s in %s: got %s, want none", none[1], none[0], got)
		}
		if len(warnings) > 0 {
			t.Errorf("warnings for %s in %s: got %q, want none", none[1], none[0], warnings)
		}
	}
	got, warnings := create(markers{err: errors.New("no cache")}, "shop", `{}`)
	if got != "null" {
		t.Errorf("changes without a cache: got %s, want none", got)
	}
	if len(warnings) != 1 {
		t.Errorf("warnings without a cache: got %q, want one", warnings)
	}
}

// PPM-120 (part): the liveness probe of a pod that asks for it moves; another pod keeps it.
func TestLivenessProbesMove(t *testing.T) {
	create := func(owner string) string {
		raw := []byte(`{"metadata":{"annotations":{"apps.kruise.io/using-enhanced-liveness":"true"},"ownerReferences":[{"apiVersion":"` + owner + `","kind":"CloneSet","controller":true}]},
			"spec":{"containers":[{"name":"a"},{"name":"b","livenessProbe":{"exec":{"command":["x"]}}}]}}`)
		changes, _, err := NewChain(Liveness()).Mutate(t.Context(), Request{Raw: raw})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(changes)
		return string(text)
	}
	got := create("apps.kruise.io/v1beta1")
	for _, part := range []string{`container-probe-context`, `"path":"/spec/containers/1/livenessProbe"`} {
		if !strings.Contains(got, part) {
			t.Errorf("changes for a workload of ours: got %s, want %s in them", got, part)
		}
	}
	if got := create("apps/v1"); got != "null" {
		t.Errorf("changes for another workload: got %s, want none", got)
	}
}
