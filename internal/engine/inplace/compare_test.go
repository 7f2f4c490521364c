package inplace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
				t.Errorf("what blocks the change: got %v, want nothing", blockers)
			}
			if diff := cmp.Diff(tt.want, change, cmpopts.IgnoreFields(Change{}, "Stops")); diff != "" {
				t.Errorf("the change (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.words, change.String()); diff != "" {
				t.Errorf("the change in words (-want +got):\n%s", diff)
			}
			if got, want := change.Holds(), len(tt.want.Images) > 0; got != want { // IPU-308
				t.Errorf("the change takes the pod out of service: got %t, want %t", got, want)
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
					t.Fatalf("what blocks the change (-want +got):\n%s", diff)
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

var everything = Options{EnvFromMetadata: true, Resize: true}

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// What changes in containers, in words, and which containers it stops.
func TestComparisonNamesChangesAndWhatTheyStop(t *testing.T) {
	const envs = `"env":[{"name":"L","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['l']"}}},{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.annotations['a/b~c']"}}}]`
	template := func(metadata, spec string) string { return `{"metadata":{` + metadata + `},"spec":{` + spec + `}}` }
	one := func(container string) string { return `"containers":[{"name":"a","image":"i:1"` + container + `}]` }
	limits := func(cpu, memory string) string {
		return one(`,"resources":{"limits":{"cpu":"` + cpu + `","memory":"` + memory + `"},"requests":{"cpu":"1","memory":"1Gi"}}`)
	}
	restartFor := func(spec, name string) string {
		return strings.Replace(spec, `"resources"`, `"resizePolicy":[{"resourceName":"`+name+
			`","restartPolicy":"RestartContainer"},{"resourceName":"other","restartPolicy":"NotRequired"}],"resources"`, 1)
	}
	tests := map[string]struct {
		options  Options
		old, new string
		words    string
		blocked  string
		stops    []string
		daemon   []string
		holds    bool
	}{
		"IPU-035, IPU-136 more cpu and memory": {everything, template("", limits("2", "2Gi")), template("", limits("3", "3Gi")),
			"resources of a to limits cpu 3, limits memory 3Gi", "", nil, nil, false},
		"IPU-035 by value": {everything, template("", limits("2", "2Gi")), template("", limits("2000m", "3Gi")),
			"resources of a to limits memory 3Gi", "", nil, nil, false},
		"IPU-136 resizePolicy restarts for what changes": {everything, template("", restartFor(limits("2", "2Gi"), "memory")),
			template("", restartFor(limits("2", "3Gi"), "memory")),
			"resources of a to limits memory 3Gi", "", []string{"a"}, nil, true},
		"IPU-136 resizePolicy restarts for something else": {everything, template("", restartFor(limits("2", "2Gi"), "cpu")),
			template("", restartFor(limits("2", "3Gi"), "cpu")),
			"resources of a to limits memory 3Gi", "", nil, nil, false},
		"IPU-037 the QoS class": {everything, template("", limits("2", "2Gi")), template("", limits("1", "1Gi")),
			"resources of a to limits cpu 1, limits memory 1Gi",
			"spec.containers: resources would change the QoS class from Burstable to Guaranteed", nil, nil, false},
		"IPU-040 without the gate": {Options{EnvFromMetadata: true}, template("", limits("2", "2Gi")), template("", limits("3", "2Gi")),
			"revision labels only", "spec.containers[0].resources.limits.cpu: resources change in place only with gate InPlaceWorkloadVerticalScaling on a server that has pods/resize", nil, nil, false},
		"IPU-036 another resource": {everything, template("", one(`,"resources":{"limits":{"ephemeral-storage":"1Gi"}}`)),
			template("", one(`,"resources":{"limits":{"ephemeral-storage":"2Gi"}}`)),
			"revision labels only",
			"spec.containers[0].resources.limits.ephemeral-storage: of the resources only cpu and memory can change in place", nil, nil,
			false},
		"IPU-115 image and resources": {everything, template("", limits("2", "2Gi")),
			template("", strings.Replace(limits("3", "2Gi"), "i:1", "i:2", 1)),
			"image of a to i:2; resources of a to limits cpu 3", "", []string{"a"}, nil, true},
		"IPU-091, IPU-092, IPU-211 metadata that a container reads, keys with special characters": {everything,
			template(`"labels":{"l":"1","m":"1"},"annotations":{"a/b~c":"1"}`, one(","+envs)),
			template(`"labels":{"l":"2","m":"2"},"annotations":{"a/b~c":"2"}`, one(","+envs)),
			"environment of a from a/b~c, l; labels m", "", []string{"a"}, []string{"a"}, true},
		"IPU-212, IPU-319 image and environment of one container need no daemon": {everything,
			template(`"labels":{"l":"1"}`, one(","+envs)), template(`"labels":{"l":"2"}`, strings.Replace(one(","+envs), "i:1", "i:2", 1)),
			"image of a to i:2; environment of a from l", "", []string{"a"}, nil, true},
		"IPU-309 the template had no annotations": {everything, template("", one(","+envs)),
			template(`"annotations":{"a/b~c":"1"}`, one(","+envs)),
			"environment of a from a/b~c", "", []string{"a"}, []string{"a"}, true},
		"IPU-309 the key is removed": {everything, template(`"annotations":{"a/b~c":"1","x":"1"}`, one(","+envs)),
			template(`"annotations":{"x":"1"}`, one(","+envs)),
			"environment of a from a/b~c", "", []string{"a"}, []string{"a"}, true},
		"IPU-094 with the gate off": {Options{}, template(`"labels":{"l":"1"}`, one(","+envs)),
			template(`"labels":{"l":"2"}`, one(","+envs)),
			"labels l", "", nil, nil, false},
		"IPU-092 a literal value, the whole map and a sidecar's version do not count": {everything,
			template(`"labels":{"l":"1"}`, one(`,"env":[{"name":"SIDECARSET_VERSION","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['l']"}}},{"name":"M","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels"}}},{"name":"V","value":"metadata.labels['l']"}]`)),
			template(`"labels":{"l":"2"}`, one(`,"env":[{"name":"SIDECARSET_VERSION","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['l']"}}},{"name":"M","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels"}}},{"name":"V","value":"metadata.labels['l']"}]`)),
			"labels l", "", nil, nil, false},
		"IPU-093 ordinary init containers do not count": {everything,
			template(`"labels":{"l":"1"}`, `"containers":[],"initContainers":[{"name":"x",`+envs+`}]`),
			template(`"labels":{"l":"2"}`, `"containers":[],"initContainers":[{"name":"x",`+envs+`}]`),
			"labels l", "", nil, nil, false},
		"IPU-318 a native sidecar": {everything,
			template(`"labels":{"l":"1"}`, `"containers":[],"initContainers":[{"name":"x","image":"x:1","restartPolicy":"Always",`+envs+
				`}]`),
			template(`"labels":{"l":"2"}`, `"containers":[],"initContainers":[{"name":"x","image":"x:2","restartPolicy":"Always",`+envs+
				`}]`),
			"image of x to x:2; environment of x from l", "", []string{"x"}, nil, true},
		"IPU-318 an ordinary init container": {everything,
			template("", `"containers":[],"initContainers":[{"name":"x","image":"x:1"}]`),
			template("", `"containers":[],"initContainers":[{"name":"x","image":"x:2"}]`),
			"revision labels only", "spec.initContainers[0].image: an init container that has ended does not run again; annotation apps.kruise.io/inplace-update-init-containers: \"true\" in template.metadata lets its image change, for the next start of the pod's sandbox", nil, nil, false},
		"IPU-318 an ordinary init container, opted in": {everything,
			template(`"annotations":{"apps.kruise.io/inplace-update-init-containers":"true"}`,
				`"containers":[],"initContainers":[{"name":"x","image":"x:1"}]`),
			template(`"annotations":{"apps.kruise.io/inplace-update-init-containers":"true"}`,
				`"containers":[],"initContainers":[{"name":"x","image":"x:2"}]`),
			"image of x to x:2", "", nil, nil, false},
		"IPU-322, CS-358 a restart of all": {everything,
			template("", `"containers":[{"name":"b"},{"name":"a"}],"initContainers":[{"name":"i"},{"name":"s","restartPolicy":"Always"}]`),
			template(`"annotations":{"apps.kruise.io/restarted-at":"now"}`,
				`"containers":[{"name":"b"},{"name":"a"}],"initContainers":[{"name":"i"},{"name":"s","restartPolicy":"Always"}]`),
			"restart of a, b, s; annotations apps.kruise.io/restarted-at", "", []string{"a", "b", "s"}, []string{"a", "b", "s"}, true},
		"IPU-322 the annotation is removed": {everything, template(`"annotations":{"apps.kruise.io/restarted-at":"now"}`, one("")),
			template("", one("")),
			"annotations apps.kruise.io/restarted-at", "", nil, nil, false},
		"IPU-308, CS-364 an unimportant container": {everything,
			template(`"annotations":{"apps.kruise.io/inplace-update-keep-ready":"logger, a"}`, one("")),
			template(`"annotations":{"apps.kruise.io/inplace-update-keep-ready":"logger, a"}`, strings.Replace(one(""), "i:1", "i:2", 1)),
			"image of a to i:2", "", []string{"a"}, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			change, blockers, err := Compare([]byte(tt.old), []byte(tt.new), tt.options)
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, b := range blockers {
				words = append(words, b.String())
			}
			if diff := cmp.Diff(tt.blocked, strings.Join(words, "; ")); diff != "" {
				t.Errorf("what blocks the change (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.words, change.String()); diff != "" {
				t.Errorf("the change in words (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.stops, change.Stops); diff != "" {
				t.Errorf("containers that the change stops (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.daemon, change.NeedsDaemon()); diff != "" && len(tt.daemon)+len(change.NeedsDaemon()) > 0 {
				t.Errorf("containers that need the daemon (-want +got):\n%s", diff)
			}
			if change.Holds() != tt.holds {
				t.Errorf("the change takes the pod out of service: got %t, want %t", change.Holds(), tt.holds)
			}
		})
	}
}
