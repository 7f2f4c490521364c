package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// PPS-083: thousands of pods have room in a status that can be stored, in which there is one entry for each
// with nothing but its place. Where annotations are large, what is remembered stays, further pods are not,
// and an event says so; they are once there is room.
func TestAStatusThatIsFull(t *testing.T) {
	const pods = 1200
	w := pinned(t)
	w.make("web", pods, 0, nil)
	w.write("places", "web", nil)
	w.settle()
	recorded := w.state("places").Status.PodStates
	first := recorded["web-0"]
	if len(recorded) != pods {
		t.Fatalf("number recorded: got %d, want %d; %d entries, %+v", len(recorded), pods, len(recorded), first)
	}
	if first.NodeName != "a" {
		t.Fatalf("node the first time: got %q, want %q; %d entries, %+v", first.NodeName, "a", len(recorded), first)
	}
	if len(first.NodeTopologyLabels) != 1 {
		t.Fatalf("number of node topology labels the first time: got %d, want 1; %d entries, %+v",
			len(first.NodeTopologyLabels), len(recorded), first)
	}
	if len(first.Annotations) > 0 {
		t.Fatalf("annotations the first time: got %v, want none; %d entries, %+v", first.Annotations,
			len(recorded), first)
	}
	wide := strings.Repeat("x", 1000)
	for i := range pods {
		w.Change(key("Pod", fmt.Sprint("web-", i)), func(o client.Object) { o.GetAnnotations()["wide"] = wide })
	}
	w.respec(pps, "places", func(o client.Object) {
		o.(*appsv1beta1.PersistentPodState).Spec.PersistentPodAnnotations = []appsv1beta1.PersistentPodAnnotation{{Key: "wide"}}
	})
	w.settle()
	full := w.state("places").Status
	without := 0
	for _, entry := range full.PodStates {
		if entry.Annotations["wide"] == "" {
			without++
		}
	}
	text, err := json.Marshal(full)
	if err != nil {
		t.Errorf("unexpected error: %v; %d bytes for %d pods, %d without, %v", err, len(text), len(full.PodStates), without, err)
	} else if len(text) > 1_300_000 {
		t.Errorf("length of the text: got %d, want at most 1_300_000; %d bytes for %d pods, %d without, %v",
			len(text), len(text),
			len(full.PodStates), without, err)
	} else if len(text) < 1_000_000 {
		t.Errorf("length of the text: got %d, want at least 1_000_000; %d bytes for %d pods, %d without, %v",
			len(text), len(text),
			len(full.PodStates), without, err)
	} else if len(full.PodStates) != pods {
		t.Errorf("number of pod states: got %d, want %d; %d bytes for %d pods, %d without, %v",
			len(full.PodStates), pods, len(text),
			len(full.PodStates), without, err)
	} else if without == 0 {
		t.Errorf("without: got %d, want another value; %d bytes for %d pods, %d without, %v", without, len(text), len(full.PodStates),
			without, err)
	}
	if got := w.tells("places Warning PodStatesFull"); got != 1 {
		t.Errorf("number of events PodStatesFull of places: got %d, want 1\n%q", got, w.told)
	}
	for i := range pods {
		w.Change(key("Pod", fmt.Sprint("web-", i)), func(o client.Object) { o.GetAnnotations()["wide"] = "narrow" })
	}
	w.settle()
	for name, entry := range w.state("places").Status.PodStates {
		if entry.Annotations["wide"] != "narrow" {
			t.Fatalf("%s: annotation wide: got %q, want %q\n%+v", name, entry.Annotations["wide"], "narrow", entry)
		}
	}
}
