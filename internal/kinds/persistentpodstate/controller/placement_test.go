package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	if by := w.state("places").Labels["by"]; by != "hand" {
		t.Fatalf("label by of the state places: got %q, want %q\n%+v", by, "hand", w.state("web"))
	} else if got := w.state("web"); got == nil {
		t.Fatalf("state web: got nil, want a value\n%q", by)
	} else if !metav1.IsControlledBy(w.state("web"), w.set("web")) {
		t.Fatalf("the state belongs to the set: got false, want true\n%q\n%+v", by, w.state("web"))
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
			if entry.NodeName != node.GetName() {
				t.Errorf("node: got %q, want %q; %s ran on %s, remembered is %+v", entry.NodeName, node.GetName(), name,
					node.GetName(),
					entry)
			}
			if !maps.Equal(entry.NodeTopologyLabels, wanted) {
				t.Errorf("node topology labels: got %v, want %v; %s ran on %s, remembered is %+v",
					entry.NodeTopologyLabels, wanted, name,
					node.GetName(), entry)
			}
			if entry.Annotations["ip"] != before.Annotations["ip"] {
				t.Errorf(`annotation ip: got %q, want %q; %s ran on %s, remembered is %+v`, entry.Annotations["ip"],
					before.Annotations["ip"], name, node.GetName(), entry)
			}
			w.EndGracefully(key("Pod", name))
			w.settle()
			after := w.Get(key("Pod", name)).(*corev1.Pod)
			text, err := json.Marshal(after.Spec.Affinity)
			if err != nil {
				t.Fatalf("unexpected error: %v\n%q", err, after.UID)
			} else if after.UID == before.UID {
				t.Fatalf("UID: got %q, want another value\n%v", after.UID, err)
			}
			preference := `"preference":{"matchExpressions":[{"key":"host","operator":"In","values":["` + node.GetName() + `"]}]}`
			must := after.Spec.NodeSelector["zone"]
			if set == "db" && (must != wanted["zone"] || after.Spec.Affinity != nil) {
				t.Errorf("%s comes back with %v and %s, want zone %s alone", name, after.Spec.NodeSelector, text,
					wanted["zone"])
			}
			if set == "web" && (must != "" || !strings.Contains(string(text), preference)) {
				t.Errorf("%s comes back with %v and %s, want %s alone", name, after.Spec.NodeSelector, text, preference)
			}
		}
	}
}
