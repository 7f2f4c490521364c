package podprobemarker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// enhanced is a pod of a workload of the project that asks for the enhanced liveness probe.
func enhanced(p *corev1.Pod) {
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", Controller: new(true)}}
	p.Annotations = map[string]string{pub.UsingEnhancedLiveness: "true"}
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/alive"}}}, PeriodSeconds: 5}
}

// PPM-120: which liveness probes are moved into the annotation; those that the node daemon cannot carry out
// stay with kubelet.
func TestWhichLivenessProbesAreMoved(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		moved  int
	}{
		"one":                 {func(*corev1.Pod) {}, 1},
		"of another workload": {func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps/v1" }, 0},
		"of nobody":           {func(p *corev1.Pod) { p.OwnerReferences = nil }, 0},
		"not controlled":      {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, 0}, // the caches do not keep its annotations
		"it is not asked for": {func(p *corev1.Pod) { p.Annotations = nil }, 0},
		"asked for otherwise": {func(p *corev1.Pod) { p.Annotations[pub.UsingEnhancedLiveness] = "yes" }, 0},
		"there is none":       {func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe = nil }, 0},
		"grpc": {func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe.ProbeHandler = corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}
		}, 0},
		"one of another host": {func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "x", Port: intstr.FromInt32(1)}}
		}, 0},
		"of an init container": {func(p *corev1.Pod) { p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil }, 0},
	} {
		pod := given.Pod("a", enhanced)
		test.change(pod)
		context, moved := Moved(pod)
		if len(moved) != test.moved {
			t.Errorf("%s: number moved: got %d, want %d\n%v", name, len(moved), test.moved, moved)
		}
		if want := `[{"livenessProbe":{"exec":{"command":["/alive"]},"periodSeconds":5},"name":"app"}]`; test.moved > 0 && context != want {
			t.Errorf("%s: context: got %q, want %q", name, context, want)
		}
	}
}

// PPM-120 (part): liveness probes that were moved before stay in the annotation when another one is moved.
// Two entries may send a pod, and each injects the sidecars anew; after the second one, nobody carried out
// the liveness probes of the containers beside them.
func TestLivenessProbesThatWereMovedBeforeStay(t *testing.T) {
	pod := given.Pod("a", enhanced)
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "side", LivenessProbe: pod.Spec.Containers[0].LivenessProbe})
	first, moved := Moved(pod)
	pod.Annotations[pub.LivenessProbes] = first
	pod.Spec.Containers[0].LivenessProbe = nil
	if again, second := Moved(pod); len(moved) != 2 || len(second) != 1 || again != first {
		t.Errorf("containers %v were moved into %s, and then %v, which left %s", moved, first, second, again)
	}
	pod.Annotations[pub.LivenessProbes] = `{"of": "somebody else"}`
	if other, _ := Moved(pod); other != `[{"livenessProbe":{"exec":{"command":["/alive"]},"periodSeconds":5},"name":"side"}]` {
		t.Errorf("beside an annotation of somebody else: got %s, want the probe of side alone", other)
	}
}

// PPM-121: what is stored is carried out by the node, under a name that no PodProbeMarker's can have, and a
// failed result restarts the container: once for each of its lives, later each time, and not for a result of
// the container before.
func TestFailedLivenessProbesRestartContainers(t *testing.T) {
	start := metav1.NewTime(given.Noon.Add(-time.Minute))
	for name, test := range map[string]struct {
		change func(*scene, *corev1.ContainerStatus, *appsv1alpha1.ContainerProbeState)
		want   string
		after  time.Duration
	}{
		"it failed":         {nil, "app 0", lookAgain},
		"it succeeded":      {func(_ *scene, _ *corev1.ContainerStatus, r *appsv1alpha1.ContainerProbeState) { r.State = succeeded }, "", 0},
		"nothing is known":  {func(_ *scene, _ *corev1.ContainerStatus, r *appsv1alpha1.ContainerProbeState) { r.State = unknown }, "", 0},
		"of another probe":  {func(_ *scene, _ *corev1.ContainerStatus, r *appsv1alpha1.ContainerProbeState) { r.Name = "a-other" }, "", 0},
		"the gate is off":   {func(s *scene, _ *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) { s.Liveness = false }, "", 0},
		"it does not run":   {func(_ *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) { c.State.Running = nil }, "", 0},
		"another container": {func(_ *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) { c.Name = "other" }, "", 0},
		"it started since": {func(_ *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) {
			c.State.Running.StartedAt = metav1.NewTime(given.Noon.Add(time.Second))
		}, "", 0},
		"in the second of its start": {func(_ *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) { // it was met before it ran
			c.State.Running.StartedAt = given.Noon
		}, "", 0},
		"its startup probe goes on": {func(_ *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) { c.Started = new(false) }, "", lookAgain},
		"it has started":            {func(_ *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) { c.Started = new(true) }, "app 0", lookAgain},
		"the clock of its node is ahead": {func(s *scene, _ *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) {
			s.Now = s.Now.Add(-time.Hour)
		}, "app 0", lookAgain},
		"it restarted before":    {func(_ *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) { c.RestartCount = 1 }, "app 1", lookAgain},
		"it restarts often":      {func(_ *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) { c.RestartCount = 5 }, "", 100 * time.Second},
		"it restarts very often": {func(_ *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) { c.RestartCount = 500 }, "", 4 * time.Minute},
		"it ran for long": {func(s *scene, c *corev1.ContainerStatus, _ *appsv1alpha1.ContainerProbeState) {
			c.RestartCount = 500
			s.Now = s.Now.Add(time.Hour)
		}, "app 500", lookAgain},
	} {
		pod := given.Pod("a", enhanced)
		context, _ := Moved(pod)
		pod.Annotations[pub.LivenessProbes] = context
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}}}}
		s := newScene([]*corev1.Pod{pod}, given.Marker("a-app", given.Probe("app")))
		s.Liveness = true
		s.List.Spec.PodProbes = PlanNode(&s.Snapshot).List
		text, _ := json.Marshal(s.List.Spec.PodProbes)
		if !strings.Contains(string(text), `{"name":"a-app","containerName":"app","probe":{"exec":{"command":["/alive"]},"periodSeconds":5,"failureThreshold":3}},{"name":"a-app#app"`) {
			t.Fatalf("text: got %q, want it to contain %q", string(text), `{"name":"a-app","containerName":"app","probe":{"exec":{"command":["/alive"]},"periodSeconds":5,"failureThreshold":3}},{"name":"a-app#app"`)
		}
		result := given.Result("a-app", failed, "no")
		if test.change != nil {
			test.change(s, &pod.Status.ContainerStatuses[0], &result)
		}
		results(s, result)
		p := PlanNode(&s.Snapshot)
		got := ""
		for _, r := range p.Restarts {
			got += fmt.Sprint(r.Container, " ", r.Count)
			request := r.Request()
			if request.Spec.PodName != "a" {
				t.Errorf("pod of the request: got %q, want %q\n%+v", request.Spec.PodName, "a", request)
			} else if request.OwnerReferences[0].UID != pod.UID {
				t.Errorf("UID of the first owner of the request: got %q, want %q\n%+v", request.OwnerReferences[0].UID,
					pod.UID, request)
			} else if request.Name != fmt.Sprintf("liveness-uid-a-app-%d", r.Count) {
				t.Errorf("name of the request: got %q, want %q\n%+v", request.Name, fmt.Sprintf("liveness-uid-a-app-%d",
					r.Count), request)
			}
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		if p.After != test.after {
			t.Errorf("%s: time to the next pass: got %v, want %v", name, p.After, test.after)
		}
		if !Restarted(given.Pod("a"), pod) && pod.Status.ContainerStatuses[0].State.Running != nil {
			t.Errorf("%s: the container that runs does not count as restarted", name)
		}
		if Restarted(pod, pod) {
			t.Errorf("%s: a pod that does not change counts as restarted", name)
		}
	}
	pod := given.Pod("a", enhanced, func(p *corev1.Pod) { p.Annotations[pub.LivenessProbes] = "{" })
	s := newScene([]*corev1.Pod{pod})
	s.Liveness = true
	if p := PlanNode(&s.Snapshot); p.Write {
		t.Errorf("write: got true, want false\n%v", p.List)
	}
}

// A PodProbeMarker of the namespace asks for all room of a node: the liveness probes there, which kubelet
// does not carry out any more, have precedence, and one that is left out all the same is told.
func TestLivenessProbesAreNotCrowdedOut(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 100 {
		pod := given.Pod(fmt.Sprintf("p%03d", i), enhanced)
		pod.Annotations[pub.LivenessProbes], _ = Moved(pod)
		pods = append(pods, pod)
	}
	pods[7].Annotations[pub.LivenessProbes] = `[{"name":"app","livenessProbe":{"tcpSocket":{"port":"none"}}}]`
	var greedy []probe
	for i := range 32 {
		greedy = append(greedy, given.Probe(fmt.Sprint("x", i)))
	}
	s := newScene(pods, given.Marker("m", greedy...))
	s.Liveness = true
	p := PlanNode(&s.Snapshot)
	n := 0
	for _, pod := range p.List {
		for _, probe := range pod.Probes {
			if MarkerOf(probe.Name) == "" {
				n++
			}
		}
	}
	if n != 99 {
		t.Errorf("%d of 99 liveness probes are carried out", n)
	}
	told := ""
	for _, w := range p.Warnings {
		if w.Marker == nil {
			told += w.Message
		}
	}
	if told != "the liveness probe of container app is not carried out: container app has no port none" {
		t.Errorf("told: got %q, want %q", told, "the liveness probe of container app is not carried out: container app has no port none")
	}
}

// A pod that asks for the enhanced liveness probe came to a virtual node, where nobody carries it out: that
// is told.
func TestALivenessProbeOfAVirtualNodeIsToldToBeMissing(t *testing.T) {
	pod := given.Pod("a", enhanced)
	pod.Annotations[pub.LivenessProbes], _ = Moved(pod)
	s := newScene([]*corev1.Pod{pod})
	s.List, s.Liveness = nil, true
	s.Node.Labels[pub.NodeType] = pub.VirtualNode
	if p := PlanNode(&s.Snapshot); len(p.Warnings) != 1 {
		t.Errorf("number of warnings: got %d, want 1\n%+v", len(p.Warnings), p.Warnings)
	} else if !strings.Contains(p.Warnings[0].Message, "the liveness probe of container app is not carried out") {
		t.Errorf("message of the first warning: got %q, want it to contain %q\n%+v", p.Warnings[0].Message,
			"the liveness probe of container app is not carried out", p.Warnings)
	}
}

// Somebody wrote thousands of liveness probes into the annotation of his pods: those of containers that there
// are count, each once.
func TestLivenessProbesOfContainersThatThereAreNot(t *testing.T) {
	pod := given.Pod("a", enhanced, func(p *corev1.Pod) {
		p.Annotations[pub.LivenessProbes] = `[{"name":"none","livenessProbe":{"exec":{"command":["a"]}}},{"name":"app","livenessProbe":{"exec":{"command":["b"]}}},` +
			`{"name":"app","livenessProbe":{"exec":{"command":["c"]}}}]`
	})
	s := newScene([]*corev1.Pod{pod})
	s.Liveness = true
	if p := PlanNode(&s.Snapshot); len(p.List) != 1 {
		t.Errorf("number of markers of the list: got %d, want 1\n%v", len(p.List), p.List)
	} else if len(p.List[0].Probes) != 1 {
		t.Errorf("number of probes of the first marker: got %d, want 1\n%v", len(p.List[0].Probes), p.List)
	} else if p.List[0].Probes[0].Probe.Exec.Command[0] != "b" {
		t.Errorf("first of the command of the exec of the probe: got %q, want %q\n%v",
			p.List[0].Probes[0].Probe.Exec.Command[0], "b", p.List)
	}
}
