package podprobemarker

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// scene is a node with a NodePodProbe, pods and PodProbeMarkers.
type scene struct {
	Snapshot
	markers  []*marker
	replaced bool
}

func newScene(pods []*corev1.Pod, markers ...*marker) *scene {
	s := &scene{markers: markers, Snapshot: Snapshot{Name: "n", Node: given.Node("n"), Pods: pods, Now: given.Noon.Time}}
	s.List = &appsv1alpha1.NodePodProbe{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	s.Markers = func(namespace string) []Marker {
		found, _ := Markers(slices.DeleteFunc(slices.Clone(s.markers), func(m *marker) bool { return m.Namespace != namespace }), nil)
		return found
	}
	s.Ports = Port
	s.Replaced = func(*corev1.Pod, string, time.Time) bool { return s.replaced }
	s.Whole = func(*corev1.Pod) bool { return true }
	return s
}

// wanted is the list that the plan leaves, as JSON.
func (s *scene) wanted(t *testing.T) (string, *Plan) {
	t.Helper()
	p := PlanNode(&s.Snapshot)
	list := s.List.Spec.PodProbes
	if p.Write {
		list = p.List
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), p
}

func labelled(labels map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = labels }
}

// PPM-002 (part), PPM-003 (part), PPM-010, PPM-140 (part), PPM-146 (part), PPM-016 (part), PPM-040 (part),
// PPM-042, PPM-051, PPM-052: the list has every pod that is matched, with its address and the probes of all
// that match it. An equal list, in whatever order, is not written anew.
func TestWhatNodesAreToProbe(t *testing.T) {
	a, b := given.Pod("a"), given.Pod("b", func(p *corev1.Pod) { p.Status.PodIP = "" })
	for name, change := range map[string]func(*corev1.Pod){
		"done":          func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"failed":        func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"going":         func(p *corev1.Pod) { p.DeletionTimestamp = &given.Noon },
		"uninitialized": func(p *corev1.Pod) { p.Status.Phase, p.Status.Conditions = corev1.PodPending, nil },
		"other":         labelled(nil),
		"elsewhere":     func(p *corev1.Pod) { p.Namespace = "other" },
	} {
		s := newScene([]*corev1.Pod{given.Pod(name, change)}, given.Marker("m", given.Probe("idle")))
		if got, _ := s.wanted(t); got != "null" {
			t.Errorf("%s: wanted: got %q, want %q", name, got, "null")
		}
	}
	s := newScene([]*corev1.Pod{b, a}, given.Marker("z", given.Probe("x", plain("example.com/x"))), given.Marker("m", given.Probe("idle"), given.Probe("warm")))
	got, p := s.wanted(t)
	const probe = `{"name":"%s","containerName":"app","probe":{"exec":{"command":["/%s"]}}}`
	probes := fmt.Sprintf("["+probe+","+probe+","+probe+"]", "m#idle", "idle", "m#warm", "warm", "z#x", "x")
	if want := `[{"name":"a","namespace":"shop","uid":"uid-a","IP":"10.0.0.1","probes":` + probes + `},{"name":"b","namespace":"shop","uid":"uid-b","IP":"","probes":` +
		probes + `}]`; got != want {
		t.Errorf("got %q, want %q\n%q", got, want, cmp.Diff(want, got))
	}
	s.List.Spec.PodProbes = slices.Clone(p.List)
	slices.Reverse(s.List.Spec.PodProbes)
	slices.Reverse(s.List.Spec.PodProbes[0].Probes)
	if p := PlanNode(&s.Snapshot); p.Write {
		t.Errorf("what only has another order is written anew: %s", p)
	} else if p.String() != "" {
		t.Errorf("the plan for what only has another order: got %s, want none", p)
	}
	b.Status.PodIP = "10.0.0.9"
	if got, _ := s.wanted(t); !strings.Contains(got, `"IP":"10.0.0.9"`) {
		t.Errorf("wanted: got %q, want it to contain %q", got, `"IP":"10.0.0.9"`)
	}
}

// PPM-054, PPM-057 (part), PPM-066: what is not wanted any more goes: probes that a PodProbeMarker lost,
// those of one that is going and of no other, pods that do not match any more, that are gone or that came
// again.
func TestWhatNodesNeedNotProbeAnyMore(t *testing.T) {
	a := given.Pod("a")
	for name, test := range map[string]struct {
		change func(*scene)
		want   []string
	}{
		"nothing changed":     {func(*scene) {}, []string{"a uid-a ab#idle", "a uid-a b#idle", "a uid-a b#warm"}},
		"a probe went":        {func(s *scene) { s.markers[1].Spec.Probes = s.markers[1].Spec.Probes[:1] }, []string{"a uid-a ab#idle", "a uid-a b#idle"}},
		"b goes":              {func(s *scene) { s.markers[1].DeletionTimestamp = &given.Noon }, []string{"a uid-a ab#idle"}},
		"both are gone":       {func(s *scene) { s.markers = nil }, nil},
		"other labels":        {func(s *scene) { s.Pods[0] = given.Pod("a", labelled(nil)) }, nil},
		"the pod is gone":     {func(s *scene) { s.Pods = nil }, nil},
		"the pod has ended":   {func(s *scene) { s.Pods[0] = given.Pod("a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }) }, nil},
		"another of its name": {func(s *scene) { s.Pods[0] = given.Pod("a", func(p *corev1.Pod) { p.UID = "new" }) }, []string{"a new ab#idle", "a new b#idle", "a new b#warm"}},
	} {
		s := newScene([]*corev1.Pod{a}, given.Marker("ab", given.Probe("idle")), given.Marker("b", given.Probe("idle"), given.Probe("warm")))
		s.List.Spec.PodProbes = PlanNode(&s.Snapshot).List
		test.change(s)
		s.wanted(t)
		list := s.List.Spec.PodProbes
		if p := PlanNode(&s.Snapshot); p.Write {
			list = p.List
		}
		var got []string
		for _, pod := range list {
			for _, probe := range pod.Probes {
				got = append(got, pod.Name+" "+pod.UID+" "+probe.Name)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// PPM-053, PPM-145 (part): ports by name become numbers, those that cannot be found are left out and told.
// PPM-011 (part), PPM-028 (part): what aims at another host is never carried out, though it is stored: report
// of users of the reference, to whose nodes a tenant could say where to connect to.
func TestAProbeThatCannotBeCarriedOutIsLeftOutAndTold(t *testing.T) {
	pod := given.Pod("a", func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
		p.Spec.InitContainers = []corev1.Container{{Name: "side", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 9090}}}}
	})
	for name, test := range map[string]struct {
		container  string
		do         appsv1alpha1.ContainerProbeHandler
		want, told string
	}{
		"a number":                {"app", appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}, `"tcpSocket":{"port":80}`, ""},
		"a name":                  {"app", appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}}, `"tcpSocket":{"port":8080}`, ""},
		"of a sidecar":            {"side", appsv1alpha1.ContainerProbeHandler{HTTPGet: &appsv1alpha1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")}}, `"port":9090`, ""},
		"a number in words":       {"app", appsv1alpha1.ContainerProbeHandler{HTTPGet: &appsv1alpha1.HTTPGetAction{Path: "/", Port: intstr.FromString("81")}}, `"port":81`, ""},
		"a name that is none":     {"app", appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("grpc")}}, "null", "container app has no port grpc"},
		"no port":                 {"app", appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(0)}}, "null", "0 is no port"},
		"another host":            {"app", appsv1alpha1.ContainerProbeHandler{HTTPGet: &appsv1alpha1.HTTPGetAction{Host: "169.254.169.254", Path: "/", Port: intstr.FromInt32(80)}}, "null", "host field in probes is not allowed"},
		"a socket of another":     {"app", appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "x", Port: intstr.FromInt32(80)}}, "null", "host field in probes is not allowed"},
		"grpc":                    {"app", appsv1alpha1.ContainerProbeHandler{GRPC: &appsv1alpha1.GRPCAction{}}, "null", "exactly one of"},
		"a static pod":            {"app", appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}, "null", "a static pod"},
		"no command":              {"app", appsv1alpha1.ContainerProbeHandler{Exec: &corev1.ExecAction{}}, "null", "no command"},
		"a command that is local": {"app", appsv1alpha1.ContainerProbeHandler{Exec: &corev1.ExecAction{Command: []string{"bash", "./idle.sh"}}}, `["bash","./idle.sh"]`, ""},
	} {
		s := newScene([]*corev1.Pod{pod}, given.Marker("m", given.Probe("idle", func(p *probe) { p.ContainerName, p.Probe = test.container, probeSpec{ContainerProbeHandler: test.do} })))
		if pod.OwnerReferences = nil; name == "a static pod" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", Controller: new(true)}}
		}
		got, p := s.wanted(t)
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want it to contain %q", name, got, test.want)
		}
		switch {
		case test.told == "":
			if len(p.Warnings)+len(p.Pods) > 0 {
				t.Errorf("%s: number of warnings and pods: got %d, want 0\n%v\n%v", name, len(p.Warnings)+len(p.Pods),
					p.Warnings, p.Pods)
			}
		case len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0].Message, test.told) || len(p.Pods) != 1 ||
			!strings.Contains(p.Pods[0].Conditions[0].Message, "not probed: ") || p.Pods[0].Conditions[0].Status != corev1.ConditionFalse:
			t.Errorf("%s: got warnings %+v and pods %+v, want one of each, about %q and not probed", name, p.Warnings,
				p.Pods, test.told)
		}
	}
}

// PPM-012 (part): what numbers mean.
func TestNumbersThatAreAbsentAreOne(t *testing.T) {
	want := given.Exec("a")
	want.InitialDelaySeconds, want.TimeoutSeconds, want.PeriodSeconds, want.SuccessThreshold, want.FailureThreshold = 1, 1, 1, 1, 7
	given := given.Exec("a")
	given.FailureThreshold = 7
	if diff := cmp.Diff(want, Effective(given)); diff != "" {
		t.Errorf("options that hold (-want +got):\n%s", diff)
	}
}

// PPM-041, PPM-065 (part), PPM-116: a node has a NodePodProbe from when it is ready, until it is gone; a
// virtual one has none.
func TestNodePodProbesOfNodes(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*scene)
		want   string
	}{
		"there is none": {func(s *scene) { s.List = nil }, "create the NodePodProbe with 1 pods"},
		"a node that is not ready": {func(s *scene) {
			s.List, s.Node.Status.Conditions[0].Status = nil, corev1.ConditionFalse
		}, ""},
		"a node that never was":              {func(s *scene) { s.List, s.Node.Status.Conditions = nil, nil }, ""},
		"one that is not ready any more":     {func(s *scene) { s.Node.Status.Conditions = nil }, "write 1 pods"},
		"the node is gone":                   {func(s *scene) { s.Node = nil }, "delete the NodePodProbe"},
		"the node goes":                      {func(s *scene) { s.Node.DeletionTimestamp = &given.Noon }, "delete the NodePodProbe"},
		"a virtual node":                     {func(s *scene) { s.Node.Labels[pub.NodeType] = pub.VirtualNode }, "delete the NodePodProbe"},
		"a virtual node without":             {func(s *scene) { s.List, s.Node.Labels[pub.NodeType] = nil, pub.VirtualNode }, ""},
		"neither":                            {func(s *scene) { s.List, s.Node = nil, nil }, ""},
		"the NodePodProbe goes":              {func(s *scene) { s.List.DeletionTimestamp = &given.Noon }, ""},
		"the NodePodProbe goes, as its node": {func(s *scene) { s.Node, s.List.DeletionTimestamp = nil, &given.Noon }, ""},
	} {
		s := newScene([]*corev1.Pod{given.Pod("a")}, given.Marker("m", given.Probe("idle")))
		test.change(s)
		if got := PlanNode(&s.Snapshot).String(); got != test.want {
			t.Errorf("%s: plan of the node: got %q, want %q", name, got, test.want)
		}
	}
}

// PPM-034: however much is asked for, a NodePodProbe stays far below what API servers store, and namespaces
// that ask for little get it.
func TestWhoAsksForMuchTakesNothingFromOthers(t *testing.T) {
	long := func(name string) probe {
		return given.Probe(name, plain("example.com/"+name), func(p *probe) { p.Probe = given.Exec(strings.Repeat("x", 4000)) })
	}
	var pods []*corev1.Pod
	var greedy []probe
	for i := range 20 {
		greedy = append(greedy, long(fmt.Sprint("p", i)))
	}
	for i := range 200 {
		pods = append(pods, given.Pod(fmt.Sprint("greedy-", i), func(p *corev1.Pod) { p.Namespace = "greedy" }))
	}
	pods = append(pods, given.Pod("modest"))
	all := given.Marker("all", greedy...)
	all.Namespace = "greedy"
	s := newScene(pods, all, given.Marker("m", given.Probe("idle")))
	text, p := s.wanted(t)
	if len(text) > MostListBytes {
		t.Errorf("length of the text: got %d, want at most %d", len(text), MostListBytes)
	}
	if len(text) < MostListBytes/2 {
		t.Errorf("length of the text: got %d, want at least %d", len(text), MostListBytes/2)
	}
	if !strings.Contains(text, `"m#idle"`) {
		t.Error("who asks for little gets nothing")
	}
	if len(p.Warnings) == 0 {
		t.Errorf("warnings: got none, want some\n%v", p.Warnings)
	} else if !strings.Contains(p.Warnings[0].Message, "the NodePodProbe of its node is full") {
		t.Errorf("message of the first warning: got %q, want it to contain %q\n%v", p.Warnings[0].Message,
			"the NodePodProbe of its node is full",
			p.Warnings)
	} else if p.Warnings[0].Marker != all {
		t.Errorf("marker of the first warning: got %+v, want %+v\n%v", p.Warnings[0].Marker, all, p.Warnings)
	}
	// Many small ones, with results that are as long as they may be.
	var small []probe
	for i := range 30 {
		small = append(small, given.Probe(fmt.Sprint("p", i), plain(fmt.Sprint("example.com/p", i))))
	}
	s = newScene(pods, given.Marker("m", small...))
	s.markers[0].Namespace = "greedy"
	s.List.Spec.PodProbes = PlanNode(&s.Snapshot).List
	n := 0
	for _, pod := range s.List.Spec.PodProbes {
		n += len(pod.Probes)
	}
	for _, pod := range s.List.Spec.PodProbes {
		status := appsv1alpha1.PodProbeStatus{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
		for _, probe := range pod.Probes {
			status.ProbeStates = append(status.ProbeStates, given.Result(probe.Name, appsv1alpha1.ProbeSucceeded, strings.Repeat("x", MessageBytes(n))))
		}
		s.List.Status.PodProbeStatuses = append(s.List.Status.PodProbeStatuses, status)
	}
	if whole, err := json.Marshal(s.List); err != nil {
		t.Errorf("unexpected error: %v; %d bytes for %d probes, %v", err, len(whole), n, err)
	} else if len(whole) > 1_200_000 {
		t.Errorf("bytes of the whole: got %d, want at most 1_200_000; %d bytes for %d probes, %v", len(whole),
			len(whole), n, err)
	} else if n > MostListed {
		t.Errorf("n: got %d, want at most %d; %d bytes for %d probes, %v", n, MostListed, len(whole), n, err)
	} else if n < 500 {
		t.Errorf("n: got %d, want at least 500; %d bytes for %d probes, %v", n, len(whole), n, err)
	}
	if got := MessageBytes(0); got != 1024 {
		t.Errorf("bytes of a message for none: got %d, want 1024", got)
	}
	if got := MessageBytes(100); got != 1024 {
		t.Errorf("bytes of a message for 100: got %d, want 1024", got)
	}
	if got := MessageBytes(1e6); got != 32 {
		t.Errorf("bytes of a message for a million: got %d, want 32", got)
	}
}

// PPM-034 (part): PodProbeMarkers beyond what a namespace may have are not carried out.
func TestTooManyPodProbeMarkers(t *testing.T) {
	var all []*marker
	for i := range 510 {
		all = append(all, given.Marker(fmt.Sprintf("m%03d", i), given.Probe("idle")))
	}
	slices.Reverse(all)
	kept, left := Markers(all, nil)
	if len(kept) != 500 {
		t.Errorf("number kept: got %d, want 500\n%d", len(kept), len(left))
	} else if kept[0].Name != "m000" {
		t.Errorf("name of the first kept: got %q, want %q\n%d\n%d", kept[0].Name, "m000", len(kept), len(left))
	} else if len(left) != 10 {
		t.Errorf("number left: got %d, want 10\n%d", len(left), len(kept))
	} else if left[0].Name != "m500" {
		t.Errorf("name of the first left: got %q, want %q\n%d\n%d", left[0].Name, "m500", len(kept), len(left))
	}
	none := given.Marker("none", given.Probe("idle"))
	none.Spec.Selector = &metav1.LabelSelector{}
	broken := given.Marker("broken", given.Probe("idle"))
	broken.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	if kept, left := Markers([]*marker{none, broken}, nil); len(kept)+len(left) > 0 {
		t.Errorf("number of kept and left: got %d, want 0\n%v", len(kept)+len(left), kept)
	}
	pods := []*corev1.Pod{given.Pod("a"), given.Pod("b", labelled(nil)), given.Pod("c", func(p *corev1.Pod) { p.Spec.NodeName = "gone" })}
	if n := Matches(given.Marker("m"), pods, func(node string) bool { return node == "n" }); n != 1 { // PPM-040 (part), PPM-059 (part)
		t.Errorf("pods that match: got %d, want 1", n)
	}
	if Matches(none, pods, func(string) bool { return true }) != 0 {
		t.Error("an empty selector matches")
	}
}

// PPM-010 (part), PPM-057 (part): the part before # is the name of the PodProbeMarker, and not just in it.
func TestNamesOfProbes(t *testing.T) {
	if got := MarkerOf(ProbeName("ab", "x")); got != "ab" {
		t.Errorf(`marker of the probe: got %q, want %q`, got, "ab")
	}
	if got := MarkerOf("pod-app"); got != "" {
		t.Errorf(`marker of pod-app: got %q, want %q`, got, "")
	}
	found := Listed([]appsv1alpha1.PodProbe{{Namespace: "shop", Probes: []appsv1alpha1.ContainerProbe{{Name: "ab#x"}, {Name: "web-1-app"}}}})
	if diff := cmp.Diff(map[string]bool{"shop/ab": true}, found); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// Somebody has a hundred PodProbeMarkers of 32 probes each for a hundred pods of one node: what does not fit
// anyway takes neither time nor memory of all others' manager, and he is told.
func TestWhoAsksForFarTooMuchTakesNoMemory(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 100 {
		pods = append(pods, given.Pod(fmt.Sprint("p", i)))
	}
	var markers []*marker
	for i := range 100 {
		var probes []probe
		for j := range 32 {
			probes = append(probes, given.Probe(fmt.Sprint("p", j), plain(fmt.Sprintf("example.com/c%d-%d", i, j)), func(p *probe) {
				p.Probe = given.Exec(strings.Repeat("x", 800))
			}))
		}
		markers = append(markers, given.Marker(fmt.Sprintf("m%03d", i), probes...))
	}
	s := newScene(pods, markers...)
	for _, pod := range pods {
		s.List.Status.PodProbeStatuses = append(s.List.Status.PodProbeStatuses, given.Results(pod, given.Result("m000#p0", appsv1alpha1.ProbeSucceeded, "")))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := PlanNode(&s.Snapshot)
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 400 { // it was 1,200; the race detector needs many times what a plan needs by itself
		t.Errorf("the plan took %d MiB", took)
	}
	conditions, told := 0, map[string]bool{}
	for i := range p.Pods {
		conditions += len(p.Pods[i].Conditions)
	}
	for _, w := range p.Warnings {
		told[w.Marker.Name] = told[w.Marker.Name] || strings.Contains(w.Message, "the NodePodProbe of its node is full")
	}
	if conditions > MostListed {
		t.Errorf("conditions: got %d, want at most %d", conditions, MostListed)
	}
	if len(told) < 90 {
		t.Errorf("number told: got %d, want at least 90", len(told))
	}
}

// A PodProbeMarker that the reference admitted writes the condition Ready: kubelet alone does. What others
// write is left alone, and told.
func TestConditionsOfKubeletAreNotWritten(t *testing.T) {
	for _, condition := range []string{"Ready", "DisruptionTarget"} {
		s := newScene([]*corev1.Pod{given.Pod("a")}, given.Marker("m", given.Probe("idle", plain(condition))))
		results(s, given.Result("m#idle", appsv1alpha1.ProbeFailed, "no"))
		if got := s.patches(); got != "" {
			t.Errorf("%s: patches: got %q, want %q", condition, got, "")
		}
		if p := PlanNode(&s.Snapshot); len(p.Warnings) != 1 {
			t.Errorf("%s: number of warnings: got %d, want 1\n%+v", condition, len(p.Warnings), p.Warnings)
		} else if !strings.Contains(p.Warnings[0].Message, "condition "+condition+" is written by others") {
			t.Errorf("%s: message of the first warning: got %q, want it to contain %q\n%+v", condition,
				p.Warnings[0].Message,
				"condition "+condition+" is written by others", p.Warnings)
		}
	}
}

// Two PodProbeMarkers write one condition, and the probe of the second cannot be carried out: the condition
// is that of the first, also while that has no result. One that says so says since when.
func TestAProbeThatIsLeftOutSpoilsNoConditionOfAnother(t *testing.T) {
	none := given.Probe("idle", func(p *probe) {
		p.Probe = probeSpec{ContainerProbeHandler: appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("none")}}}
	})
	s := newScene([]*corev1.Pod{given.Pod("a", with("True", "ok", nil))}, given.Marker("a", given.Probe("idle")), given.Marker("b", none))
	results(s, given.Result("a#idle", unknown, ""))
	if got := s.patches(); got != "" {
		t.Errorf("patches: got %q, want %q", got, "")
	}
	s.markers = s.markers[1:]
	s.Now = s.Now.Add(time.Hour)
	p := PlanNode(&s.Snapshot)
	if len(p.Pods) != 1 {
		t.Errorf("number of pods: got %d, want 1\n%+v", len(p.Pods), p.Pods)
	} else if !p.Pods[0].Conditions[0].LastTransitionTime.Time.Equal(s.Now) {
		t.Errorf("time of the last change of the first condition of the first pod: got %v, want %v\n%+v",
			p.Pods[0].Conditions[0].LastTransitionTime.Time,
			s.Now, p.Pods)
	}
}

// Somebody has thousands of PodProbeMarkers with long selectors: those that are not carried out cost no more
// than their names.
func TestPodProbeMarkersThatAreTooManyCostNothing(t *testing.T) {
	var all []*marker
	for i := range 3000 {
		m := given.Marker(fmt.Sprintf("m%04d", i), given.Probe("idle"))
		for j := range 100 {
			m.Spec.Selector.MatchLabels[fmt.Sprint("k", j)] = "v"
		}
		all = append(all, m)
	}
	few, many := testing.AllocsPerRun(1, func() { Markers(all[:MostMarkers], nil) }), testing.AllocsPerRun(1, func() { Markers(all, nil) })
	if many > few*1.1 { // other goroutines allocate, too
		t.Errorf("%v allocations for 500, %v for 3000", few, many)
	}
}
