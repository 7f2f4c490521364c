package inplace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func pointer(s string) *string { return &s }

func TestCompareQualifies(t *testing.T) {
	tests := map[string]struct {
		old, new string
		want     *Change
		words    string
	}{
		"IPU-042 no difference": {
			`{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"a","image":"i:1"}]}}`,
			`{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[{"name":"a","image":"i:1"}]}}`, &Change{}, "revision labels only"},
		"IPU-033 an image": {
			`{"spec":{"containers":[{"name":"a","image":"i:1"},{"name":"b","image":"j:1"}]}}`,
			`{"spec":{"containers":[{"name":"a","image":"i:1"},{"name":"b","image":"j:2"}]}}`,
			&Change{Parts: Parts{Images: map[string]string{"b": "j:2"}}}, "image of b to j:2"},
		"IPU-033 several images": {
			`{"spec":{"containers":[{"name":"a","image":"i:1"},{"name":"b","image":"j:1"}]}}`,
			`{"spec":{"containers":[{"name":"a","image":"i:2"},{"name":"b","image":"j:2"}]}}`,
			&Change{Parts: Parts{Images: map[string]string{"a": "i:2", "b": "j:2"}}}, "image of a to i:2; image of b to j:2"},
		"IPU-033 another spelling of an image is another value": {
			`{"spec":{"containers":[{"name":"a","image":"nginx"}]}}`, `{"spec":{"containers":[{"name":"a","image":"nginx:latest"}]}}`,
			&Change{Parts: Parts{Images: map[string]string{"a": "nginx:latest"}}}, "image of a to nginx:latest"},
		"IPU-034, IPU-090 labels and annotations added, changed, removed": {
			`{"metadata":{"labels":{"keep":"1","change":"1","drop":"1"},"annotations":{"keep":"1","change":"1","drop":"1"}},"spec":{"containers":[]}}`,
			`{"metadata":{"labels":{"keep":"1","change":"2","add":"1"},"annotations":{"keep":"1","change":"2","add":""}},"spec":{"containers":[]}}`,
			&Change{Labels: map[string]*string{"change": pointer("2"), "drop": nil, "add": pointer("1")},
				Annotations: map[string]*string{"change": pointer("2"), "drop": nil, "add": pointer("")}},
			"labels add, change, drop; annotations add, change, drop"},
		"IPU-082 what controllers know a pod by": {
			`{"metadata":{"labels":{"apps.kruise.io/cloneset-instance-id":"a","controller-revision-hash":"b","pod-template-hash":"c","lifecycle.apps.kruise.io/state":"Normal"},"annotations":{"apps.kruise.io/inplace-update-state":"{}"}},"spec":{"containers":[]}}`,
			`{"metadata":{"labels":{"apps.kruise.io/cloneset-instance-id":"x","apps.kruise.io/specified-delete":"true"},"annotations":{"lifecycle.apps.kruise.io/timestamp":"x"}},"spec":{"containers":[]}}`, &Change{}, "revision labels only"},
		"IPU-090 all annotations removed": {
			`{"metadata":{"annotations":{"a":"1","b":"2"}},"spec":{"containers":[]}}`, `{"spec":{"containers":[]}}`,
			&Change{Annotations: map[string]*string{"a": nil, "b": nil}}, "annotations a, b"},
		"IPU-090 the first annotation": {
			`{"spec":{"containers":[]}}`, `{"metadata":{"annotations":{"a":"1"}},"spec":{"containers":[]}}`,
			&Change{Annotations: map[string]*string{"a": pointer("1")}}, "annotations a"},
		"IPU-034 finalizers gained and lost": {
			`{"metadata":{"finalizers":["x/one","x/two"]},"spec":{"containers":[]}}`,
			`{"metadata":{"finalizers":["x/two","x/three"]},"spec":{"containers":[]}}`,
			&Change{AddFinalizers: []string{"x/three"}, RemoveFinalizers: []string{"x/one"}}, "finalizers"},
		"IPU-034 reordered finalizers change nothing": {
			`{"metadata":{"finalizers":["x/one","x/two"]},"spec":{"containers":[]}}`,
			`{"metadata":{"finalizers":["x/two","x/one"]},"spec":{"containers":[]}}`,
			&Change{}, "revision labels only"},
		"IPU-034 unknown metadata": {
			`{"metadata":{"future":{"a":1}},"spec":{"containers":[]}}`, `{"metadata":{"future":{"a":2}},"spec":{"containers":[]}}`,
			&Change{}, "revision labels only"},
		"image and metadata together": {
			`{"metadata":{"labels":{"v":"1"}},"spec":{"containers":[{"name":"a","image":"i:1"}]}}`,
			`{"metadata":{"labels":{"v":"2"}},"spec":{"containers":[{"name":"a","image":"i:2"}]}}`,
			&Change{Parts: Parts{Images: map[string]string{"a": "i:2"}}, Labels: map[string]*string{"v": pointer("2")}},
			"image of a to i:2; labels v"},
		"IPU-032 the same quantity in another notation, what the reference wrote as null, $patch": {
			`{"$patch":"replace","metadata":{"creationTimestamp":null},"spec":{"containers":[{"name":"a","image":"i:1","resources":{"limits":{"cpu":"1000m"}}}]}}`,
			`{"spec":{"containers":[{"name":"a","image":"i:1","resources":{"limits":{"cpu":"1"}}}]}}`,
			&Change{}, "revision labels only"},
		"IPU-032 an unknown field that stays": {
			`{"spec":{"futurePodField":1,"containers":[{"name":"a","image":"i:1","futureField":{"x":1}}]}}`,
			`{"spec":{"futurePodField":1,"containers":[{"name":"a","image":"i:2","futureField":{"x":1}}]}}`,
			&Change{Parts: Parts{Images: map[string]string{"a": "i:2"}}}, "image of a to i:2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			change, blockers, err := Compare([]byte(tt.old), []byte(tt.new), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(blockers) > 0 {
				t.Errorf("blocked: %v", blockers)
			}
			if diff := cmp.Diff(tt.want, change, cmpopts.IgnoreFields(Change{}, "Stops")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.words, change.String()); diff != "" {
				t.Error(diff)
			}
			if got, want := change.Holds(), len(tt.want.Images) > 0; got != want { // IPU-308
				t.Errorf("Holds = %v", got)
			}
		})
	}
}

// IPU-032: every difference is classified, and one that does not qualify blocks the change. IPU-031: only the
// two templates decide.
func TestCompareDoesNotQualify(t *testing.T) {
	containers := func(text string) string { return `{"spec":{"containers":[` + text + `]}}` }
	const (
		image = "an image can only be replaced by another one"
		only  = "only images and resources of containers, and metadata, can change in place"
		gate  = "resources change in place only with gate InPlaceWorkloadVerticalScaling on a server that has pods/resize"
		count = "containers cannot be added or removed in place"
	)
	tests := map[string]struct {
		old, new string
		want     []Blocker
	}{
		"IPU-033 an image that was not there": {containers(`{"name":"a"}`), containers(`{"name":"a","image":"i"}`),
			[]Blocker{{"spec.containers[0].image", image}}},
		"IPU-033 an image removed": {containers(`{"name":"a","image":"i"}`), containers(`{"name":"a"}`),
			[]Blocker{{"spec.containers[0].image", image}}},
		"IPU-036, IPU-040 a resource added": {
			containers(`{"name":"a"}`), containers(`{"name":"a","resources":{"limits":{"cpu":"1"}}}`),
			[]Blocker{{"spec.containers[0].resources.limits", only}}},
		"IPU-036, IPU-040 a resource removed": {
			containers(`{"name":"a","resources":{"limits":{"cpu":"1","memory":"1Gi"}}}`),
			containers(`{"name":"a","resources":{"limits":{"cpu":"1"}}}`),
			[]Blocker{{"spec.containers[0].resources.limits.memory", gate}}},
		"IPU-036 another resource": {
			containers(`{"name":"a","resources":{"limits":{"ephemeral-storage":"1Gi"}}}`),
			containers(`{"name":"a","resources":{"limits":{"ephemeral-storage":"2Gi"}}}`),
			[]Blocker{{"spec.containers[0].resources.limits.ephemeral-storage", gate}}},
		"IPU-036 resource claims": {
			containers(`{"name":"a"}`), containers(`{"name":"a","resources":{"claims":[{"name":"gpu"}]}}`),
			[]Blocker{{"spec.containers[0].resources.claims", only}}},
		"IPU-037, IPU-040 a change of the QoS class": {
			containers(`{"name":"a","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}}`),
			containers(`{"name":"a","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"1"}}}`),
			[]Blocker{{"spec.containers[0].resources.requests.cpu", gate}}},
		"IPU-038 a container added": {containers(`{"name":"a"}`), containers(`{"name":"a"},{"name":"b"}`),
			[]Blocker{{"spec.containers", count}}},
		"IPU-038 a container removed": {containers(`{"name":"a"},{"name":"b"}`), containers(`{"name":"a"}`),
			[]Blocker{{"spec.containers", count}}},
		"IPU-038 a container renamed": {containers(`{"name":"a"}`), containers(`{"name":"b"}`),
			[]Blocker{{"spec.containers[0].name", only}}},
		"IPU-038 containers reordered": {
			containers(`{"name":"a"},{"name":"b"}`), containers(`{"name":"b"},{"name":"a"}`),
			[]Blocker{{"spec.containers[0].name", only}, {"spec.containers[1].name", only}}},
		"IPU-038 an init container's image": {
			`{"spec":{"containers":[],"initContainers":[{"name":"a","image":"i:1"}]}}`,
			`{"spec":{"containers":[],"initContainers":[{"name":"a","image":"i:2"}]}}`,
			[]Blocker{{"spec.initContainers[0].image", "an init container that has ended does not run again; annotation apps.kruise.io/inplace-update-init-containers: \"true\" in template.metadata lets its image change, for the next start of the pod's sandbox"}}},
		"IPU-038 ephemeral containers": {
			`{"spec":{"containers":[]}}`, `{"spec":{"containers":[],"ephemeralContainers":[{"name":"a"}]}}`,
			[]Blocker{{"spec.ephemeralContainers", only}}},
		"IPU-038 volumes": {
			`{"spec":{"containers":[],"volumes":[{"name":"v","emptyDir":{}}]}}`, `{"spec":{"containers":[]}}`,
			[]Blocker{{"spec.volumes", only}}},
		"IPU-038, IPU-213 env value": {
			containers(`{"name":"a","env":[{"name":"A","value":"1"}]}`), containers(`{"name":"a","env":[{"name":"A","value":"2"}]}`),
			[]Blocker{{"spec.containers[0].env", only}}},
		"IPU-038, IPU-213 env entry added": {containers(`{"name":"a"}`), containers(`{"name":"a","env":[{"name":"A"}]}`),
			[]Blocker{{"spec.containers[0].env", only}}},
		"IPU-039 env reordered": {
			containers(`{"name":"a","env":[{"name":"A"},{"name":"B"}]}`), containers(`{"name":"a","env":[{"name":"B"},{"name":"A"}]}`),
			[]Blocker{{"spec.containers[0].env", only}}},
		"IPU-038 envFrom": {containers(`{"name":"a"}`), containers(`{"name":"a","envFrom":[{"prefix":"x"}]}`),
			[]Blocker{{"spec.containers[0].envFrom", only}}},
		"IPU-038 command": {containers(`{"name":"a","command":["x"]}`), containers(`{"name":"a","command":["y"]}`),
			[]Blocker{{"spec.containers[0].command", only}}},
		"IPU-038 args": {containers(`{"name":"a","args":["x"]}`), containers(`{"name":"a","args":["x","y"]}`),
			[]Blocker{{"spec.containers[0].args", only}}},
		"IPU-038 ports": {containers(`{"name":"a"}`), containers(`{"name":"a","ports":[{"containerPort":1}]}`),
			[]Blocker{{"spec.containers[0].ports", only}}},
		"IPU-038 a probe": {containers(`{"name":"a","livenessProbe":{"periodSeconds":1}}`),
			containers(`{"name":"a","livenessProbe":{"periodSeconds":2}}`),
			[]Blocker{{"spec.containers[0].livenessProbe.periodSeconds", only}}},
		"IPU-038 lifecycle": {containers(`{"name":"a"}`), containers(`{"name":"a","lifecycle":{"preStop":{"sleep":{"seconds":1}}}}`),
			[]Blocker{{"spec.containers[0].lifecycle", only}}},
		"IPU-038 resizePolicy": {containers(`{"name":"a"}`),
			containers(`{"name":"a","resizePolicy":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]}`),
			[]Blocker{{"spec.containers[0].resizePolicy", only}}},
		"IPU-038 restartPolicy": {containers(`{"name":"a"}`), containers(`{"name":"a","restartPolicy":"Always"}`),
			[]Blocker{{"spec.containers[0].restartPolicy", only}}},
		"IPU-038 imagePullPolicy": {containers(`{"name":"a","imagePullPolicy":"Always"}`),
			containers(`{"name":"a","imagePullPolicy":"Never"}`), []Blocker{{"spec.containers[0].imagePullPolicy", only}}},
		"IPU-038 securityContext": {containers(`{"name":"a"}`), containers(`{"name":"a","securityContext":{"runAsUser":1}}`),
			[]Blocker{{"spec.containers[0].securityContext", only}}},
		"IPU-038 pod resources": {`{"spec":{"containers":[]}}`, `{"spec":{"containers":[],"resources":{"limits":{"cpu":"1"}}}}`,
			[]Blocker{{"spec.resources", only}}},
		"IPU-038 pod restart policy, scheduling, tolerations": {
			`{"spec":{"containers":[],"restartPolicy":"Always","nodeSelector":{"a":"b"}}}`,
			`{"spec":{"containers":[],"restartPolicy":"OnFailure","nodeSelector":{"a":"c"},"tolerations":[{"key":"x"}]}}`,
			[]Blocker{{"spec.nodeSelector.a", only}, {"spec.restartPolicy", only}, {"spec.tolerations", only}}},
		"a field of the pod that our types do not know": {`{"spec":{"containers":[]}}`, `{"spec":{"containers":[],"future":{"x":1}}}`,
			[]Blocker{{"spec.future", only}}},
		"a field of a container that our types do not know": {containers(`{"name":"a","future":false}`),
			containers(`{"name":"a","future":true}`), []Blocker{{"spec.containers[0].future", only}}},
		"a field beside metadata and spec": {`{"spec":{"containers":[]}}`, `{"spec":{"containers":[]},"future":1}`,
			[]Blocker{{"future", only}}},
		"an image and something else": {
			containers(`{"name":"a","image":"i:1","tty":true}`), containers(`{"name":"a","image":"i:2"}`),
			[]Blocker{{"spec.containers[0].tty", only}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for range 3 { // IPU-031: always the same answer
				_, blockers, err := Compare([]byte(tt.old), []byte(tt.new), Options{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, blockers); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestCompareFails(t *testing.T) {
	const good = `{"spec":{"containers":[]}}`
	tests := map[string]struct{ old, new string }{
		"old is no JSON":                 {`{`, good},
		"new is no object":               {good, `[]`},
		"IPU-036 an unparsable quantity": {good, `{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"lots"}}}]}}`},
		"containers are no list":         {good, `{"spec":{"containers":{}}}`},
		"annotations no map":             {`{"metadata":{"annotations":[]}}`, good},
		"both templates are junk":        {`1`, `2`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Compare([]byte(tt.old), []byte(tt.new), Options{}); err == nil {
				t.Error("accepted")
			}
		})
	}
}
