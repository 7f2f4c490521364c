package inplace

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
)

var everything = Options{EnvFromMetadata: true, Resize: true}

func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// TestCompareParts: what changes in containers, in words, and which containers it stops.
func TestCompareParts(t *testing.T) {
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
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.words, change.String()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.stops, change.Stops); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.daemon, change.NeedsDaemon()); diff != "" && len(tt.daemon)+len(change.NeedsDaemon()) > 0 {
				t.Error(diff)
			}
			if change.Holds() != tt.holds {
				t.Errorf("Holds is %v", change.Holds())
			}
		})
	}
}

// TestQualityOfService agrees with the API server's rule (IPU-037).
func TestQualityOfService(t *testing.T) {
	both := func(limit, request string) corev1.ResourceRequirements {
		r := corev1.ResourceRequirements{}
		if limit != "" {
			r.Limits = quantities("cpu", limit, "memory", limit)
		}
		if request != "" {
			r.Requests = quantities("cpu", request, "memory", request)
		}
		return r
	}
	tests := map[string]struct {
		pod, first, second corev1.ResourceRequirements
		want               corev1.PodQOSClass
	}{
		"nothing":               {want: corev1.PodQOSBestEffort},
		"limits alone":          {first: both("1", ""), second: both("2", ""), want: corev1.PodQOSGuaranteed},
		"limits are requests":   {first: both("1", "1"), second: both("2", "2"), want: corev1.PodQOSGuaranteed},
		"requests alone":        {first: both("", "1"), second: both("", "1"), want: corev1.PodQOSBurstable},
		"requests below limits": {first: both("2", "1"), second: both("1", "1"), want: corev1.PodQOSBurstable},
		"one container without": {first: both("1", "1"), want: corev1.PodQOSBurstable},
		"other resources do not count": {first: corev1.ResourceRequirements{Limits: quantities("ephemeral-storage", "1Gi")},
			want: corev1.PodQOSBestEffort},
		"the pod's own come first": {pod: both("1", "1"), first: both("", "1"), want: corev1.PodQOSGuaranteed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Resources: tt.first}},
				InitContainers: []corev1.Container{{Resources: tt.second}}}
			if len(tt.pod.Limits) > 0 {
				spec.Resources = &tt.pod
			}
			if got := QualityOfService(spec); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// prioritized is a pod of three containers: main without launch priority, agent and proxy with 10 and 5, each
// reading annotations.
func prioritized() *corev1.Pod {
	env := func(priority string, keys ...string) []corev1.EnvVar {
		var envs []corev1.EnvVar
		if priority != "" {
			envs = append(envs, corev1.EnvVar{Name: pub.ContainerBarrierEnv, ValueFrom: &corev1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "p_" + priority}}})
		}
		for _, key := range keys {
			envs = append(envs, corev1.EnvVar{Name: "E_" + key, ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + key + "']"}}})
		}
		return envs
	}
	pod := webPod()
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "main:1", Env: env("0", "x")},
		{Name: "agent", Image: "agent:1", Env: env("10", "y")},
		{Name: "proxy", Image: "proxy:1", Env: env("5", "x")}}
	long := noon.Add(-time.Hour)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{runs("agent", "agent:1", "sha-a", "c-a", long),
		runs("main", "main:1", "sha-m", "c-m", long),
		runs("proxy", "proxy:1", "sha-p", "c-p", long)}
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].Ready = true
	}
	return pod
}

// kubelet plays the kubelet: it replaces the containers whose image differs from what they run.
func kubelet(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if c := containerOf(pod, status.Name); c.Image != status.Image {
			*status = runs(c.Name, c.Image, "sha-"+c.Image, status.ContainerID+"'", noon.Add(time.Minute))
			status.Ready = true
		}
	}
	return pod
}

// TestBatches plays an update in batches by launch priority (IPU-060, IPU-065 (part), IPU-066, IPU-067,
// IPU-103 (part), IPU-104, IPU-217 (part), IPU-302 (part)).
func TestBatches(t *testing.T) {
	change := &Change{Parts: Parts{Images: map[string]string{"main": "main:2", "agent": "agent:2", "proxy": "proxy:2"}},
		Stops: []string{"agent", "main", "proxy"}}
	pod := prioritized()
	patch, err := to("web-2", change, 0).Start(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	pod = applied(t, pod, patch)
	state := func() *State {
		t.Helper()
		s, err := StateOf(pod)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	images := func(want ...string) {
		t.Helper()
		var got []string
		for _, c := range pod.Spec.Containers {
			got = append(got, c.Image)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
	images("main:1", "agent:2", "proxy:1")
	if diff := cmp.Diff(map[string]string{"main": "main:2", "proxy": "proxy:2"}, state().NextContainerImages); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(&PreCheck{ContainersRequiredReady: []string{"agent"}}, state().PreCheckBeforeNext); diff != "" {
		t.Fatal(diff)
	}
	if status, _ := Progress(pod, noon); status.Next || status.Complete || status.Waiting != "container agent does not run agent:2 yet" {
		t.Fatalf("%+v", status)
	}
	pod = kubelet(pod)
	statusOf(pod, "agent").Ready = false
	if status, _ := Progress(pod, noon); status.Next || status.Waiting != "container agent must be ready before the next batch" {
		t.Fatalf("%+v", status)
	}
	statusOf(pod, "agent").Ready = true
	for _, want := range [][]string{{"main:1", "agent:2", "proxy:2"}, {"main:2", "agent:2", "proxy:2"}} {
		if status, _ := Progress(pod, noon); !status.Next || status.Complete {
			t.Fatalf("%+v", status)
		}
		if patch, err = Continue(pod, noon); err != nil {
			t.Fatal(err)
		}
		pod = applied(t, pod, patch)
		images(want...)
		pod = kubelet(pod)
	}
	if status, _ := Progress(pod, noon); !status.Complete || state().PreCheckBeforeNext != nil || len(state().ContainerBatchesRecord) != 3 {
		t.Fatalf("%+v %+v", status, state())
	}
	if diff := cmp.Diff(`{"agent":1,"main":1,"proxy":1}`, pod.Annotations[pub.InPlaceUpdateRestarts]); diff != "" { // IPU-320
		t.Error(diff)
	}
}

// TestFurtherRevisionKeepsBatches: what an interrupted update had not written yet, the next update writes
// (IPU-327).
func TestFurtherRevisionKeepsBatches(t *testing.T) {
	pod := prioritized()
	apply := func(u *Update) {
		t.Helper()
		patch, err := u.Start(pod, noon)
		if err != nil {
			t.Fatal(err)
		}
		pod = applied(t, pod, patch)
	}
	cpu := corev1.ResourceRequirements{Limits: quantities("cpu", "2")}
	value, other := "v", "w"
	apply(to("web-2",
		&Change{Parts: Parts{Images: map[string]string{"main": "main:2", "agent": "agent:2"},
			Resources: map[string]corev1.ResourceRequirements{"main": cpu},
			Refs:      map[string]RefMetadata{"main": {Annotations: map[string]*string{"x": &value}}}, Restarts: []string{"proxy"}}}, 0))
	apply(to("web-3",
		&Change{Parts: Parts{Images: map[string]string{"agent": "agent:3"},
			Refs: map[string]RefMetadata{"main": {Labels: map[string]*string{"l": &other}}}}}, 0))
	state, err := StateOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	left := state.remaining()
	if diff := cmp.Diff(Parts{Images: map[string]string{"main": "main:2"}, Resources: map[string]corev1.ResourceRequirements{"main": cpu},
		Refs:     map[string]RefMetadata{"main": {Annotations: map[string]*string{"x": &value}, Labels: map[string]*string{"l": &other}}},
		Restarts: []string{"proxy"}}, left); diff != "" {
		t.Error(diff)
	}
	if got := pod.Spec.Containers[1].Image; got != "agent:3" {
		t.Errorf("agent has %s", got)
	}
}

// TestSplitSharedMetadata: a container that reads the same metadata as one of the batch joins the batch
// (IPU-102).
func TestSplitSharedMetadata(t *testing.T) {
	value := "v"
	reads := func(keys ...string) RefMetadata {
		refs := RefMetadata{Annotations: map[string]*string{}}
		for _, key := range keys {
			refs.Annotations[key] = &value
		}
		return refs
	}
	tests := map[string]struct {
		refs       map[string]RefMetadata
		now, later []string
	}{
		"by priority": {map[string]RefMetadata{"agent": reads("y"), "main": reads("x"), "proxy": reads("z")}, []string{"agent"},
			[]string{"main", "proxy"}},
		"shared": {map[string]RefMetadata{"agent": reads("y"), "main": reads("y"), "proxy": reads("z")},
			[]string{"agent", "main"}, []string{"proxy"}},
		"shared through": {map[string]RefMetadata{"agent": reads("y"), "main": reads("y", "x"), "proxy": reads("x")},
			[]string{"agent", "main", "proxy"}, nil},
		"the highest there": {map[string]RefMetadata{"main": reads("x"), "proxy": reads("z")}, []string{"proxy"}, []string{"main"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now, later := split(prioritized(), Parts{Refs: tt.refs}, nil)
			if diff := cmp.Diff(tt.now, now.Names()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.later, later.Names()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestHashes checks the hashes against known values (IPU-125, IPU-126).
func TestHashes(t *testing.T) {
	if got := PlainHash("main", "nginx:alpine"); got != "3255874907" {
		t.Errorf("plain hash %s", got)
	}
	pod := webPod(annotated("a", "foo"))
	if got := EnvHash(pod, &corev1.Container{}); got != "86995377" {
		t.Errorf("hash of no environment %s", got)
	}
	container := &corev1.Container{Env: []corev1.EnvVar{{Name: "LITERAL", Value: "x"}, {Name: "e2", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['a']"}}}}}
	if got := EnvHash(pod, container); got != "2053173458" {
		t.Errorf("hash of one entry %s", got)
	}
}

// reporting adds what the node daemon reports of container nginx.
func reporting(containerID, plain, env string) func(*corev1.Pod) {
	return annotated(pub.RuntimeContainersMeta,
		`{"containers":[{"name":"other","containerID":"c-1","restartCount":0,"hashes":{"plainHash":1}},{"name":"nginx","containerID":"`+
			containerID+`","restartCount":1,"hashes":{"plainHash":`+plain+`,"extractedEnvFromMetadataHash":`+env+`}}],"future":1}`)
}

// TestProgressOfParts: completion of environment, restarts, resizes, and by the daemon's hashes. Its report
// is read in the form in which it is written (IPU-123, ND-093), by the names of containers, in any order
// (IPU-311).
func TestProgressOfParts(t *testing.T) {
	since := noon.Add(time.Minute)
	readsA := func(pod *corev1.Pod) {
		pod.Annotations["a"] = "foo"
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "e2",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['a']"}}}}
	}
	state := func(members string) func(*corev1.Pod) {
		return annotated(pub.InPlaceUpdateState, `{"revision":"web-1","updateTimestamp":"`+noonText+`",`+members+`}`)
	}
	nginx := func(status corev1.ContainerStatus) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.ContainerStatuses[1] = status }
	}
	sized := func(cpu string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Limits = quantities("cpu", "2", "memory", "1Gi")
			pod.Status.ContainerStatuses[1].Resources = &corev1.ResourceRequirements{Limits: quantities("cpu", cpu, "memory", "2Gi")}
			pod.Status.ContainerStatuses[0].Resources = nil // an injected sidecar without resources
		}
	}
	pending := func(reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
					Reason: reason, Message: "node is full", LastTransitionTime: metav1.NewTime(noon)})
		}
	}
	const resize = `"resizedContainers":{"nginx":{"limits":{"cpu":"2"}}},"updateResources":true`
	const byEnv = `"envContainers":{"nginx":"c-1"},"updateEnvFromMetadata":true`
	silent := noon.Add(5*time.Minute + 30*time.Second)
	notYet := Status{Waiting: "container nginx has not been restarted with its new environment yet", SilentFrom: silent}
	later := notYet
	later.SilentFrom = noon.Add(65 * time.Minute)
	tests := map[string]struct {
		pod  *corev1.Pod
		want Status
	}{
		"IPU-126 the daemon reports the new environment": {webPod(readsA, state(byEnv), reporting("c-1", "1", "2053173458")),
			Status{Complete: true}},
		"IPU-126 the daemon reports the old one": {webPod(readsA, state(byEnv), reporting("c-1", "1", "5")), notYet},
		"IPU-124, IPU-312 the daemon reports another container": {webPod(readsA, state(byEnv), reporting("c-0", "1", "2053173458")),
			Status{Waiting: "container nginx: the node daemon has not reported its environment yet", SilentFrom: silent}},
		"IPU-312 its container may take an hour to end": {webPod(readsA, state(byEnv), reporting("c-1", "1", "5"),
			func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(3600)) }), later},
		"IPU-312 it crashed, and kubelet starts it": {webPod(readsA, state(byEnv), reporting("c-1", "1", "5"),
			nginx(corev1.ContainerStatus{Name: "nginx", ContainerID: "c-1"})), Status{Waiting: notYet.Waiting}},
		"IPU-312 no report, but a new container": {webPod(readsA, state(byEnv), nginx(runs("nginx", "nginx:1", "sha-1", "c-2", since))),
			Status{Complete: true}},
		"IPU-122 a new container with the old environment": {
			webPod(readsA, state(byEnv), nginx(runs("nginx", "nginx:1", "sha-1", "c-2", since)), reporting("c-2", "1", "5")), notYet},
		"IPU-087 it does not run": {webPod(readsA, state(byEnv), nginx(corev1.ContainerStatus{Name: "nginx"})),
			Status{Complete: true}},
		"IPU-122 written by the reference: the daemon says": {webPod(readsA, state(`"updateEnvFromMetadata":true`),
			reporting("c-1", "1", "5")), notYet},
		"IPU-122 written by the reference: nothing is read": {webPod(state(`"updateEnvFromMetadata":true`)), Status{Complete: true}},
		"IPU-322 not restarted": {webPod(state(`"restartContainers":{"nginx":"c-1"}`)),
			Status{Waiting: "container nginx has not been restarted yet", NoDaemonSince: noon}},
		"IPU-322 restarted": {webPod(state(`"restartContainers":{"nginx":"c-1"}`),
			nginx(runs("nginx", "nginx:1", "sha-1", "c-2", since))), Status{Complete: true}},
		"IPU-128, IPU-314 resized, whatever others have": {webPod(state(resize), sized("2000m")), Status{Complete: true}},
		"IPU-128 not resized": {webPod(state(resize), sized("1")),
			Status{Waiting: "container nginx is not resized to limits cpu 2 yet"}},
		"IPU-128 a status without resources": {webPod(state(resize), sized("1"),
			func(pod *corev1.Pod) { pod.Status.ContainerStatuses[1].Resources = nil }), Status{Complete: true}},
		"IPU-128 somebody else has resized it to other ones": {webPod(state(resize), sized("1"),
			func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }), Status{Complete: true}},
		"IPU-315 infeasible": {webPod(state(resize), sized("1"), pending("Infeasible")),
			Status{Waiting: "container nginx is not resized to limits cpu 2 yet: Infeasible: node is full",
				Resize: &PendingResize{Infeasible: true, Message: "Infeasible: node is full", Since: noon,
					NotBefore: noon.Add(resizePatience)}}},
		"IPU-315 kubelet failed to resize it": {webPod(state(resize), sized("1"), func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue,
					Reason: corev1.PodReasonError, Message: "memory limit below usage"})
		}), Status{Waiting: "container nginx is not resized to limits cpu 2 yet: Error: memory limit below usage"}},
		"IPU-315 kubelet resizes it": {webPod(state(resize), sized("1"), func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue})
		}), Status{Waiting: "container nginx is not resized to limits cpu 2 yet"}},
		"IPU-315 deferred": {webPod(state(resize), sized("1"), pending("Deferred")),
			Status{Waiting: "container nginx is not resized to limits cpu 2 yet: Deferred: node is full",
				Resize: &PendingResize{Message: "Deferred: node is full", Since: noon, NotBefore: noon.Add(resizePatience)}}},
		"IPU-315 an older server": {webPod(state(resize), sized("1"),
			func(pod *corev1.Pod) { pod.Status.Resize = corev1.PodResizeStatusInfeasible }),
			Status{Waiting: "container nginx is not resized to limits cpu 2 yet: Infeasible",
				Resize: &PendingResize{Infeasible: true, Message: "Infeasible", NotBefore: noon.Add(resizePatience)}}},
		"IPU-122 the daemon's plain hash settles doubtful image names": {updating("nginx:alpine", `{"imageID":"sha-1","containerID":"c-1"}`,
			seen("nginx:1", "sha-1", "c-2", since), observing(2), reporting("c-2", PlainHash("nginx", "nginx:alpine"), "0")),
			Status{Complete: true}},
		"IPU-318 a native sidecar": {webPod(state(`"restartContainers":{"side":"c-s"}`), func(pod *corev1.Pod) {
			pod.Spec.InitContainers = []corev1.Container{{Name: "side"}}
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{runs("side", "side:1", "sha", "c-s", noon)}
		}), Status{Waiting: "container side has not been restarted yet", NoDaemonSince: noon}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Progress(tt.pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestResize: only the quantities of the first batch that differ are sent, and none while a grace period runs
// (IPU-080, IPU-112, IPU-114).
func TestResize(t *testing.T) {
	want := map[string]corev1.ResourceRequirements{"nginx": {Limits: quantities("cpu", "2", "memory", "1Gi")}}
	u := to("web-2", &Change{Parts: Parts{Resources: want}}, 30)
	pod := webPod(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = quantities("cpu", "1", "memory", "1024Mi")
	})
	patch, err := u.Resize(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	body, err := patch.JSON(pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		`{"metadata":{"resourceVersion":"5","uid":"u"},"spec":{"containers":[{"name":"nginx","resources":{"limits":{"cpu":"2"}}}]}}`,
		string(body)); diff != "" || patch.Subresource() != "resize" {
		t.Error(diff, patch.Subresource())
	}
	if again, err := u.Resize(applied(t, pod, patch), noon); err != nil || !again.Empty() {
		t.Errorf("sent again: %s %v", again, err)
	}
	graceful := to("web-2", &Change{Parts: Parts{Resources: want, Images: map[string]string{"nginx": "nginx:2"}}, Stops: []string{"nginx"}},
		30)
	if early, err := graceful.Resize(pod, noon); err != nil || !early.Empty() {
		t.Errorf("sent in the grace period: %s %v", early, err)
	}
	start, err := graceful.Start(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	later, err := ContinueResize(applied(t, pod, start), noon)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("resources of nginx", later.String()); diff != "" { // IPU-068
		t.Error(diff)
	}
}

// TestRestartsAreCounted: users can tell restarts caused by updates from crashes (IPU-320).
func TestRestartsAreCounted(t *testing.T) {
	for name, tt := range map[string]struct{ before, want string }{
		"the first":        {"", `{"nginx":1}`},
		"one more":         {`{"nginx":2,"old":1}`, `{"nginx":3,"old":1}`},
		"what is no count": {`junk`, `{"nginx":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			pod := webPod(annotated(pub.InPlaceUpdateRestarts, tt.before))
			patch, err := to("web-2", toImage("nginx:2"), 0).Start(pod, noon)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, applied(t, pod, patch).Annotations[pub.InPlaceUpdateRestarts]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestInitContainerImages: the patch names the list that the container stands in; an ordinary one is not
// waited for (IPU-318).
func TestInitContainerImages(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := webPod(func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "setup:1"},
			{Name: "side", Image: "side:1", RestartPolicy: &always}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", ContainerID: "c-0", ImageID: "sha-0"},
			runs("side", "side:1", "sha-s", "c-s", noon)}
	})
	patch, err := to("web-2", &Change{Parts: Parts{Images: map[string]string{"setup": "setup:2", "side": "side:2"}},
		Stops: []string{"side"}}, 0).Start(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	pod = applied(t, pod, patch)
	if pod.Spec.InitContainers[0].Image != "setup:2" || pod.Spec.InitContainers[1].Image != "side:2" || len(pod.Spec.Containers) != 2 {
		t.Errorf("%+v", pod.Spec)
	}
	status, err := Progress(pod, noon)
	if err != nil || status.Waiting != "container side does not run side:2 yet" {
		t.Errorf("%+v %v", status, err)
	}
	pod.Status.InitContainerStatuses[1] = runs("side", "side:2", "sha-s2", "c-s2", noon)
	if status, err = Progress(pod, noon); err != nil || !status.Complete {
		t.Errorf("%+v %v", status, err)
	}
}

// TestExplains: a quantity of another revision is distinguished from one that somebody else set (IPU-326).
func TestExplains(t *testing.T) {
	of := func(pairs ...string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: quantities(pairs...)}
	}
	tests := map[string]struct {
		other, want, have corev1.ResourceRequirements
		explained         bool
	}{
		"as it should be":           {of("cpu", "3"), of("cpu", "2"), of("cpu", "2"), false},
		"of the other":              {of("cpu", "3"), of("cpu", "2"), of("cpu", "3000m"), true},
		"of nobody's":               {of("cpu", "3"), of("cpu", "2"), of("cpu", "4"), false},
		"the other says nothing":    {of(), of("cpu", "2"), of("cpu", "3"), false},
		"the template says nothing": {of("cpu", "3"), of(), of("cpu", "3"), false},
		"one of two is somebody's": {of("cpu", "3", "memory", "3Gi"), of("cpu", "2", "memory", "2Gi"), of("cpu", "3", "memory", "4Gi"),
			false},
		"one of two is right": {of("cpu", "3", "memory", "3Gi"), of("cpu", "2", "memory", "2Gi"), of("cpu", "3", "memory", "2Gi"),
			true},
		"what cannot be resized": {of("ephemeral-storage", "3Gi"), of("ephemeral-storage", "2Gi"), of("ephemeral-storage", "3Gi"),
			false},
		"what only the pod's has stays": {of("cpu", "3"), of("cpu", "2"), of("cpu", "2", "memory", "1Gi"), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			have := Quantities(tt.have) // as the API server completes it
			if got := Explains(Quantities(tt.other), Lacking(Quantities(tt.want), have), have); got != tt.explained {
				t.Errorf("%v", got)
			}
		})
	}
}

// A change is not empty if it has two kinds of parts, also if there are equally many of both.
func TestPartsAreEmptyOnlyWithoutAnyKind(t *testing.T) {
	kinds := []func(*Parts){
		func(p *Parts) { p.Images = map[string]string{"main": "main:2"} },
		func(p *Parts) { p.Refs = map[string]RefMetadata{"main": {}} },
		func(p *Parts) { p.Resources = map[string]corev1.ResourceRequirements{"main": {}} },
		func(p *Parts) { p.Restarts = []string{"main"} },
	}
	for some := range 1 << len(kinds) {
		var parts Parts
		for i, set := range kinds {
			if some&(1<<i) != 0 {
				set(&parts)
			}
		}
		if parts.Empty() != (some == 0) {
			t.Errorf("%+v: %t", parts, parts.Empty())
		}
	}
}
