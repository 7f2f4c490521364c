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
	if first := recorded["web-0"]; len(recorded) != pods || first.NodeName != "a" || len(first.NodeTopologyLabels) != 1 || len(first.Annotations) > 0 {
		t.Fatalf("%d entries, %+v", len(recorded), first)
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
	if err != nil || len(text) > 1_300_000 || len(text) < 1_000_000 || len(full.PodStates) != pods || without == 0 {
		t.Errorf("%d bytes for %d pods, %d without, %v", len(text), len(full.PodStates), without, err)
	}
	if w.tells("places Warning PodStatesFull") != 1 {
		t.Error(w.told)
	}
	for i := range pods {
		w.Change(key("Pod", fmt.Sprint("web-", i)), func(o client.Object) { o.GetAnnotations()["wide"] = "narrow" })
	}
	w.settle()
	for name, entry := range w.state("places").Status.PodStates {
		if entry.Annotations["wide"] != "narrow" {
			t.Fatalf("%s: %+v", name, entry)
		}
	}
}
