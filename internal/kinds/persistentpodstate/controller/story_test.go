package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// PPS-001, PPS-004, PPS-070 (part): two sets with stable pod names, of which each pod is remembered with its
// node, the labels of that node and an annotation of its own. The state of one was written by a user, and
// binds; that of the other comes from its annotations, and prefers. A pod that is made again has the place
// that its name had.
func TestPodsOfBothKindsOfStatesComeBack(t *testing.T) {
	w := newWorld(t, 3)
	w.node("a", "z1")
	w.node("b", "z2")
	w.make("db", 2, 0, nil)
	w.write("places", "db", func(s *appsv1beta1.PersistentPodState) {
		s.Spec.PersistentPodAnnotations = []appsv1beta1.PersistentPodAnnotation{{Key: "ip"}}
	})
	w.make("web", 2, 0, map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.PreferredPersistentTopology: "host", pub.PersistentPodAnnotations: "ip"})
	w.settle()
	if by := w.state("places").Labels["by"]; by != "hand" || w.state("web") == nil || !metav1.IsControlledBy(w.state("web"), w.set("web")) {
		t.Fatalf("%q %+v", by, w.state("web"))
	}
	for state, set := range map[string]string{"places": "db", "web": "web"} {
		for i := range 2 {
			name := fmt.Sprintf("%s-%d", set, i)
			before := w.Get(key("Pod", name)).(*corev1.Pod)
			entry, node := w.state(state).Status.PodStates[name], w.Get(key("Node", before.Spec.NodeName))
			wanted := map[string]string{"zone": node.GetLabels()["zone"]}
			if set == "web" {
				wanted = map[string]string{"host": node.GetName()}
			}
			if entry.NodeName != node.GetName() || !maps.Equal(entry.NodeTopologyLabels, wanted) || entry.Annotations["ip"] != before.Annotations["ip"] {
				t.Errorf("%s ran on %s, remembered is %+v", name, node.GetName(), entry)
			}
			w.EndGracefully(key("Pod", name))
			w.settle()
			after := w.Get(key("Pod", name)).(*corev1.Pod)
			text, err := json.Marshal(after.Spec.Affinity)
			if err != nil || after.UID == before.UID {
				t.Fatal(err, after.UID)
			}
			preference := `"preference":{"matchExpressions":[{"key":"host","operator":"In","values":["` + node.GetName() + `"]}]}`
			if must := after.Spec.NodeSelector["zone"]; set == "db" && (must != wanted["zone"] || after.Spec.Affinity != nil) || set == "web" && (must != "" || !strings.Contains(string(text), preference)) {
				t.Errorf("%s comes back with %v and %s", name, after.Spec.NodeSelector, text)
			}
		}
	}
}

// PPS-082: these are all events that there are, each once, and there are no metrics.
func TestEventsOfPersistentPodStates(t *testing.T) {
	w := pinned(t)
	asks := map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"}
	w.make("web", 1, 0, nil)
	w.write("places", "web", func(s *appsv1beta1.PersistentPodState) {
		s.Spec.RequiredPersistentTopology.Keys = []string{"zone", "former"}
	})
	w.write("db", "elsewhere", nil) // PPS-077
	w.write("by-hand", "mq", nil)   // PPS-079
	w.make("db", 1, 0, asks)
	w.make("mq", 1, 0, asks)
	w.make("bad", 1, 0, map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "a b"})
	w.settle()
	w.Remove(key("Node", "a")) // PPS-105
	w.settle()
	w.settle()
	var got []string
	for _, told := range w.told {
		about, _, _ := strings.Cut(told, ":")
		got = append(got, about)
	}
	slices.Sort(got)
	want := []string{"bad Warning PersistentPodStateInvalid", "by-hand Normal PodStateCleaned", "db Warning PersistentPodStateConflict", "mq Warning PersistentPodStateConflict",
		"places Normal PodStateCleaned", "places Warning NodeTopologyKeyMissing"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), "prometheus") {
			t.Errorf("%s has metrics", file)
		}
		for _, reason := range regexp.MustCompile(`"((?:Pod|Node|Persistent)[A-Za-z]+)"`).FindAllStringSubmatch(string(source), -1) {
			reasons[reason[1]] = true
		}
	}
	for _, kind := range []string{"PersistentPodState", "Pod", "Node"} {
		delete(reasons, kind)
	}
	if known := slices.Sorted(maps.Keys(reasons)); !slices.Equal(known, []string{"NodeTopologyKeyMissing", "PersistentPodStateConflict", "PersistentPodStateInvalid", "PodStateCleaned", "PodStatesFull"}) {
		t.Errorf("reasons of events: %q", known)
	}
}

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
