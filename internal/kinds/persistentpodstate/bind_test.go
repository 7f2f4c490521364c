package persistentpodstate

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

func jsonOf(value any) ([]byte, error) { return json.Marshal(value) }

// bound is the document of a pod after Bind.
func bound(t *testing.T, s *appsv1beta1.PersistentPodState, document string) string {
	t.Helper()
	var p corev1.Pod
	if err := json.Unmarshal([]byte(document), &p); err != nil {
		t.Fatal(err)
	}
	text, err := jsonOf(Bind(s, &p))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) == "null" {
		return document
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := patch.Apply([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return string(changed)
}

// PPS-031, PPS-032, PPS-033, PPS-034, PPS-035, PPS-036, PPS-104, PPS-107: what a pod gets that is created,
// beside what it has. Asked again, it gets nothing more.
func TestWhatAPodGets(t *testing.T) {
	const mine = `"annotations":{"kruise.io/injected-persistent-pod-state":"places"}`
	term := func(weight, expressions string) string {
		return `{"weight":` + weight + `,"preference":{"matchExpressions":[` + expressions + `]}}`
	}
	const hostA, zone1 = `{"key":"host","operator":"In","values":["a"]}`, `{"key":"zone","operator":"In","values":["z1"]}`
	preferred := func(terms string) string {
		return `"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[` + terms + `]}}`
	}
	for name, test := range map[string]struct {
		change    func(*appsv1beta1.PersistentPodState)
		entry     *appsv1beta1.PodState
		pod, want string
	}{
		"no entry":                       {pod: `{"metadata":{"name":"web-0"},"spec":{}}`},
		"an entry without labels":        {entry: new(on("a", "ip=1")), pod: `{"metadata":{"name":"web-0"},"spec":{}}`},
		"none of the keys is remembered": {entry: new(on("a", "former=x")), pod: `{"metadata":{"name":"web-0"},"spec":{}}`},
		"both": {entry: new(on("a", "zone=z1", "host=a")), pod: `{"metadata":{"name":"web-0"},"spec":{}}`,
			want: `{"metadata":{"name":"web-0",` + mine + `},"spec":{"nodeSelector":{"zone":"z1"},` + preferred(term("80", hostA)) + `}}`},
		"beside what the pod has": {entry: new(on("a", "zone=z1", "host=a")),
			pod:  `{"metadata":{"name":"web-0","annotations":{"x":"y"}},"spec":{"new":1,"nodeSelector":{"zone":"z9","disk":"ssd"},"affinity":{"new":2,"nodeAffinity":{"new":3,"preferredDuringSchedulingIgnoredDuringExecution":[` + term("1", zone1) + `]}}}}`,
			want: `{"metadata":{"name":"web-0","annotations":{"x":"y","kruise.io/injected-persistent-pod-state":"places"}},"spec":{"new":1,"nodeSelector":{"zone":"z1","disk":"ssd"},"affinity":{"new":2,"nodeAffinity":{"new":3,"preferredDuringSchedulingIgnoredDuringExecution":[` + term("1", zone1) + `,` + term("80", hostA) + `]}}}}`},
		"an affinity without preferences": {entry: new(on("a", "host=a")), pod: `{"metadata":{"name":"web-0"},"spec":{"affinity":{"podAffinity":{}}}}`,
			want: `{"metadata":{"name":"web-0",` + mine + `},"spec":{"affinity":{"podAffinity":{},"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[` + term("80", hostA) + `]}}}}`},
		"an affinity of nodes without preferences": {entry: new(on("a", "host=a")), pod: `{"metadata":{"name":"web-0"},"spec":{"affinity":{"nodeAffinity":{}}}}`,
			want: `{"metadata":{"name":"web-0",` + mine + `},"spec":{` + preferred(term("80", hostA)) + `}}`},
		"keys of one preference together, others apart, those without a value left out": {entry: new(on("a", "zone=z1", "host=a")),
			change: func(s *appsv1beta1.PersistentPodState) {
				s.Spec.RequiredPersistentTopology = nil
				keys := func(weight int32, keys ...string) appsv1beta1.PreferredTopologyTerm {
					return appsv1beta1.PreferredTopologyTerm{Weight: weight, Preference: appsv1beta1.NodeTopologyTerm{Keys: keys}}
				}
				s.Spec.PreferredPersistentTopology = []appsv1beta1.PreferredTopologyTerm{keys(50, "zone", "former", "host"), keys(7, "former"), keys(0, "zone"), keys(900, "host")}
			}, pod: `{"metadata":{"name":"web-0"},"spec":{}}`,
			want: `{"metadata":{"name":"web-0",` + mine + `},"spec":{` + preferred(term("50", zone1+","+hostA)+","+term("1", zone1)+","+term("100", hostA)) + `}}`},
		"a must alone": {entry: new(on("a", "zone=z1", "host=a", "ip=1")), change: func(s *appsv1beta1.PersistentPodState) { s.Spec.PreferredPersistentTopology = nil },
			pod: `{"metadata":{"name":"web-0"},"spec":{}}`, want: `{"metadata":{"name":"web-0",` + mine + `},"spec":{"nodeSelector":{"zone":"z1"}}}`},
		"keys with slashes": {entry: new(on("a", "topology.kubernetes.io/zone=z1")), change: func(s *appsv1beta1.PersistentPodState) {
			s.Spec.RequiredPersistentTopology.Keys = []string{"topology.kubernetes.io/zone"}
		}, pod: `{"metadata":{"name":"web-0"},"spec":{"nodeSelector":{"a":"b"}}}`,
			want: `{"metadata":{"name":"web-0",` + mine + `},"spec":{"nodeSelector":{"a":"b","topology.kubernetes.io/zone":"z1"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := state(test.change)
			if test.entry != nil {
				s.Status.PodStates = entries{"web-0": *test.entry}
			}
			if test.want == "" {
				test.want = test.pod
			}
			got := bound(t, s, test.pod)
			var want, is any
			if err := json.Unmarshal([]byte(test.want), &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(got), &is); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("is (-want +got):\n%s", diff)
			}
			if again := bound(t, s, got); again != got {
				t.Errorf("again: %s", again)
			}
		})
	}
	entry := on("a", "zone=z1", "ip=1")
	entry.Annotations["has"], entry.Annotations["apps.kruise.io/state"] = "old", "Updating"
	s := state(func(s *appsv1beta1.PersistentPodState) {
		s.Annotations = map[string]string{pub.InjectPersistentPodAnnotations: "true"}
		s.Status.PodStates = entries{"web-0": entry}
	})
	var p corev1.Pod
	if err := json.Unmarshal([]byte(bound(t, s, `{"metadata":{"name":"web-0","annotations":{"has":"new"}},"spec":{}}`)), &p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"has": "new", "ip": "1", "kruise.io/injected-persistent-pod-state": "places"}, p.Annotations); diff != "" {
		t.Errorf("annotations that are given back: %s", diff)
	}
}

// PPS-037: what the pod itself must have, or what a subset of a WorkloadSpread has given it, stays beside the
// remembered place that contradicts it: no node has both, so that the pod waits, and the manual says so.
func TestAPodThatMustRunElsewhereWaits(t *testing.T) {
	s := state(func(s *appsv1beta1.PersistentPodState) { s.Spec.PreferredPersistentTopology = nil })
	s.Status.PodStates = entries{"web-0": on("a", "zone=z1")}
	const elsewhere = `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["z2"]}]}]}}}`
	var want, got any
	text := bound(t, s, `{"metadata":{"name":"web-0","annotations":{"apps.kruise.io/matched-workloadspread":"{}"}},"spec":{`+elsewhere+`}}`)
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("reading the pod %s: %v", text, err)
	}
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"web-0","annotations":{"apps.kruise.io/matched-workloadspread":"{}",`+
		`"kruise.io/injected-persistent-pod-state":"places"}},"spec":{"nodeSelector":{"zone":"z1"},`+elsewhere+`}}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	manualSays(t, "the pod stays pending")
	manualSays(t, "the subset of a WorkloadSpread wants another place")
}
