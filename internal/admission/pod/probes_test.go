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
	if got, _ := create(all, "shop", `{"labels":{"app":"web"}}`); !strings.Contains(got, `"path":"/metadata/annotations"`) || !strings.Contains(got, `"kruise.io/podprobemarker-list":"m"`) ||
		!strings.Contains(got, `\"podConditionType\":\"example.com/idle\"`) || strings.Contains(got, "markerPolicy") {
		t.Error(got)
	}
	if got, _ := create(all, "shop", `{"labels":{"app":"web"},"annotations":{"a":"b"}}`); !strings.Contains(got, `"path":"/metadata/annotations/kruise.io~1podprobe"`) {
		t.Error(got)
	}
	for _, none := range [][2]string{{"other", `{"labels":{"app":"web"}}`}, {"shop", `{"labels":{"app":"db"}}`}} {
		if got, warnings := create(all, none[0], none[1]); got != "null" || len(warnings) > 0 {
			t.Error(got, warnings)
		}
	}
	if got, warnings := create(markers{err: errors.New("no cache")}, "shop", `{}`); got != "null" || len(warnings) != 1 {
		t.Error(got, warnings)
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
	if got := create("apps.kruise.io/v1beta1"); !strings.Contains(got, `container-probe-context`) || !strings.Contains(got, `"path":"/spec/containers/1/livenessProbe"`) {
		t.Error(got)
	}
	if got := create("apps/v1"); got != "null" {
		t.Error(got)
	}
}
