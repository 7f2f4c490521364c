package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// town is a world at rest with node n, pod a of namespace shop on it, and a PodProbeMarker.
func town(t *testing.T, probes ...appsv1alpha1.PodContainerProbe) *world {
	t.Helper()
	w := newWorld(t, 1, Options{})
	node := given.Node("n")
	node.UID = ""
	w.Store(nodeKey("n"), node)
	w.add("a")
	if len(probes) > 0 {
		w.put(given.Marker("m", probes...))
	}
	w.quiet()
	return w
}

// add creates a pod.
func (w *world) add(name string, changes ...func(*corev1.Pod)) {
	pod := given.Pod(name, changes...)
	pod.UID = ""
	w.Store(podKey("shop", name), pod)
}

// result has the node tell of probe idle of pod a.
func (w *world) result(state appsv1alpha1.ProbeState, message string) {
	w.t.Helper()
	w.Change(listKey("n"), func(o client.Object) {
		result := given.Result("m#idle", state, message)
		result.LastProbeTime, result.LastTransitionTime = metav1.NewTime(w.Now()), metav1.NewTime(w.Now())
		o.(*appsv1alpha1.NodePodProbe).Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{given.Results(w.pod("shop", "a"), result)}
	})
	w.quiet()
}

func (w *world) names() (names []string) {
	if list := w.list("n"); list != nil {
		for _, pod := range list.Spec.PodProbes {
			for _, probe := range pod.Probes {
				names = append(names, pod.Name+" "+probe.Name)
			}
		}
	}
	return names
}

// PPM-050 (part), PPM-051 (part), PPM-055, PPM-065 (part), PPM-142: the first pods of a node that becomes ready are probed, without another event of
// theirs.
func TestANodeThatBecomesReadyLaterIsTold(t *testing.T) {
	w := newWorld(t, 1, Options{})
	w.Store(nodeKey("n"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	w.add("a")
	w.put(given.Marker("m", given.Probe("idle")))
	w.quiet()
	if w.list("n") != nil {
		t.Fatal("it has never been ready")
	}
	w.Change(nodeKey("n"), func(o client.Object) { o.(*corev1.Node).Status = given.Node("n").Status })
	w.quiet()
	if got := w.names(); !slices.Equal(got, []string{"a m#idle"}) || w.get("shop", "m").Finalizers[0] != pub.ProbeCleanup {
		t.Error(got)
	}
}

// PPM-057 (part), PPM-149 (part): deleting b leaves the probes of ab; nodes without matching pods are covered, too.
func TestDeletingAPodProbeMarkerLeavesThoseOfSimilarNames(t *testing.T) {
	w := town(t)
	w.put(given.Marker("b", given.Probe("idle")))
	w.put(given.Marker("ab", given.Probe("idle", func(p *appsv1alpha1.PodContainerProbe) { p.PodConditionType = "example.com/ab" })))
	w.quiet()
	w.EndGracefully(markerKey("shop", "b"))
	w.quiet()
	if got := w.names(); !slices.Equal(got, []string{"a ab#idle"}) || w.get("shop", "b") != nil {
		t.Error(got)
	}
}

// What another manager left is taken over: the finalizer that is there, and lists in its own order. Nothing is written, so no probe begins anew.
func TestNodesAreNotToldAnewByAnotherManager(t *testing.T) {
	w := town(t, given.Probe("idle"), given.Probe("warm"))
	w.add("b")
	w.quiet()
	w.Change(listKey("n"), func(o client.Object) {
		pods := o.(*appsv1alpha1.NodePodProbe).Spec.PodProbes
		slices.Reverse(pods)
		slices.Reverse(pods[0].Probes)
	})
	writes := len(w.Writes)
	w.start()
	w.quiet()
	if len(w.Writes) > writes {
		t.Error(w.Writes[writes:])
	}
}

// PPM-053 (part): ports of pods that the caches do not keep are read once for each pod; a name that is none is told once, whatever happens then.
func TestNamedPortsAreReadOnce(t *testing.T) {
	socket := func(name, port string) appsv1alpha1.PodContainerProbe {
		return given.Probe(name, func(p *appsv1alpha1.PodContainerProbe) {
			p.Probe = appsv1alpha1.ContainerProbeSpec{ContainerProbeHandler: appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(port)}}}
		})
	}
	w := newWorld(t, 1, Options{})
	w.Store(nodeKey("n"), given.Node("n"))
	w.add("a", func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}
	})
	w.put(given.Marker("m", socket("x", "http"), socket("y", "none")))
	w.quiet()
	for range 3 {
		w.Change(podKey("shop", "a"), func(o client.Object) { o.(*corev1.Pod).Status.PodIP += "1" })
		w.quiet()
	}
	if got := w.names(); !slices.Equal(got, []string{"a m#x"}) || w.live != 1 {
		t.Errorf("%v, %d reads", got, w.live)
	}
	told := 0
	for _, event := range w.told {
		if strings.Contains(event, "container app has no port none") && strings.HasPrefix(event, "m Warning ProbeNotPossible") {
			told++
		}
	}
	if told != 1 {
		t.Error(w.told)
	}
	if c := w.condition("example.com/y"); c == nil || c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "not probed") {
		t.Errorf("%+v", c)
	}
}

func (w *world) condition(of corev1.PodConditionType) *corev1.PodCondition {
	for i := range w.pod("shop", "a").Status.Conditions {
		if c := &w.pod("shop", "a").Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

// PPM-069 (part), PPM-143 (part): annotations of pods that the caches do not keep are looked at once for each result, and written only if they differ.
func TestPodsAreNotPatchedAgainAndAgain(t *testing.T) {
	w := town(t, given.Probe("idle", func(p *appsv1alpha1.PodContainerProbe) {
		p.MarkerPolicy[0].Annotations = map[string]string{"example.com/note": "idle"}
	}))
	w.result(appsv1alpha1.ProbeSucceeded, "ok")
	if w.pod("shop", "a").Annotations["example.com/note"] != "idle" || w.live != 1 {
		t.Fatal(w.pod("shop", "a").Annotations, w.live)
	}
	writes := len(w.Writes)
	for range 5 { // only the times are new
		w.Pass(10 * time.Minute)
		w.result(appsv1alpha1.ProbeSucceeded, "ok")
	}
	if len(w.Writes) > writes || w.live != 1 {
		t.Error(w.Writes[writes:], w.live)
	}
	w.result(appsv1alpha1.ProbeFailed, "no")
	if _, there := w.pod("shop", "a").Annotations["example.com/note"]; there || w.live != 2 {
		t.Error(w.pod("shop", "a").Annotations, w.live)
	}
}

// PPM-072 (part), report of users of the reference: while a container is being replaced the condition does not go on telling of the one before; its
// labels stay, and a daemon that begins anew changes nothing.
func TestAReplacedContainerIsNotTakenForTheOneBefore(t *testing.T) {
	w := town(t, given.Probe("idle"))
	started := func(after time.Duration) {
		w.Change(podKey("shop", "a"), func(o client.Object) {
			o.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.Now().Add(after))}}}}
		})
	}
	started(-time.Minute)
	w.result(appsv1alpha1.ProbeSucceeded, "ok")
	w.Pass(time.Minute)
	w.result(appsv1alpha1.ProbeUnknown, "")
	if c := w.condition("example.com/idle"); c.Status != corev1.ConditionTrue || c.Message != "ok" {
		t.Errorf("%+v", c)
	}
	started(0)
	w.Pass(time.Second)
	w.result(appsv1alpha1.ProbeUnknown, "")
	if c := w.condition("example.com/idle"); c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "was replaced") || w.pod("shop", "a").Labels["idle"] != "true" {
		t.Errorf("%+v %v", c, w.pod("shop", "a").Labels)
	}
	w.result(appsv1alpha1.ProbeFailed, "not yet")
	if c := w.condition("example.com/idle"); c.Message != "not yet" || w.pod("shop", "a").Labels["idle"] != "false" {
		t.Errorf("%+v", c)
	}
}

// PPM-070 (part): who writes a condition that another writes is told once.
func TestTwoWritersOfOneConditionAreTold(t *testing.T) {
	w := town(t, given.Probe("idle"))
	w.put(given.Marker("n", given.Probe("other", func(p *appsv1alpha1.PodContainerProbe) { p.PodConditionType = "example.com/idle" })))
	w.quiet()
	w.Change(listKey("n"), func(o client.Object) {
		o.(*appsv1alpha1.NodePodProbe).Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{given.Results(w.pod("shop", "a"),
			given.Result("n#other", appsv1alpha1.ProbeFailed, "no"), given.Result("m#idle", appsv1alpha1.ProbeSucceeded, "ok"))}
	})
	w.quiet()
	if c := w.condition("example.com/idle"); c.Status != corev1.ConditionTrue || len(w.told) != 1 || !strings.HasPrefix(w.told[0], "n Warning ProbeConditionConflict") {
		t.Errorf("%+v %v", c, w.told)
	}
}

// budget refuses, or allows.
type budget struct {
	asked  int
	refuse bool
}

func (b *budget) Limits(context.Context, []*corev1.Pod) (disruption.Limits, error) { return nil, nil }
func (b *budget) Tell(func(string))                                                {}
func (b *budget) Ask(context.Context, *corev1.Pod, disruption.Operation) error {
	if b.asked++; b.refuse {
		return reconcile.ErrChanged
	}
	return nil
}

// PPM-121 (part): a failed liveness probe restarts its container by one request, once budgets allow it; a request that was made stays the only one.
func TestAFailedLivenessProbeAsksForOneRestart(t *testing.T) {
	w := newWorld(t, 1, Options{Liveness: true})
	w.BeforeWrite = nil
	guard := &budget{refuse: true}
	w.r.Nodes.Guard = guard
	w.Store(nodeKey("n"), given.Node("n"))
	w.add("a", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", Controller: new(true)}}
		p.Annotations = map[string]string{pub.LivenessProbes: `[{"name":"app","livenessProbe":{"exec":{"command":["/alive"]}}}]`}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.Now())}}}}
	})
	for range 100 {
		w.Events(100)
		w.Manage()
		w.Pass(50 * time.Millisecond)
	}
	if got := w.names(); !slices.Equal(got, []string{"a a-app"}) {
		t.Fatal(got)
	}
	requests := func() (names []string) {
		for _, object := range w.List("ContainerRecreateRequest", false) {
			names = append(names, object.GetName())
		}
		return names
	}
	w.Change(listKey("n"), func(o client.Object) {
		result := given.Result("a-app", appsv1alpha1.ProbeFailed, "dead")
		result.LastTransitionTime = metav1.NewTime(w.Now())
		o.(*appsv1alpha1.NodePodProbe).Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{given.Results(w.pod("shop", "a"), result)}
	})
	play := func() {
		for range 40 {
			w.Events(100)
			w.Manage()
			w.Pass(50 * time.Millisecond)
		}
	}
	if play(); len(requests()) > 0 || guard.asked == 0 {
		t.Fatal(requests(), guard.asked)
	}
	guard.refuse = false
	play()
	if got := requests(); len(got) != 1 || got[0] != fmt.Sprintf("shop/liveness-%s-app-0", w.pod("shop", "a").UID) && got[0] != fmt.Sprintf("liveness-%s-app-0", w.pod("shop", "a").UID) {
		t.Error(got)
	}
	asked := guard.asked
	w.Pass(time.Minute)
	if play(); guard.asked != asked || len(requests()) != 1 {
		t.Error("asked again")
	}
	if len(w.told) != 1 || !strings.Contains(w.told[0], "LivenessProbeFailed") {
		t.Error(w.told)
	}
}

// PPM-034 (part): one of too many is told of it.
func TestOneOfTooManyIsTold(t *testing.T) {
	w := newWorld(t, 1, Options{})
	w.Delivered = nil
	for i := range 501 {
		m := given.Marker(fmt.Sprintf("m%03d", i), given.Probe("idle"))
		m.Spec.Selector.MatchLabels = map[string]string{"app": "none"}
		w.put(m)
	}
	w.Deliver(1000)
	for _, name := range []string{"m000", "m500", "m500"} {
		marker := w.get("shop", name)
		if err := w.r.Markers.warn(t.Context(), w.r.Markers.memory.Of(marker.UID), marker); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.told) != 1 || !strings.HasPrefix(w.told[0], "m500 Warning TooManyPodProbeMarkers") {
		t.Error(w.told)
	}
}

// Somebody else writes the label that a probe gives, each time that it was given: who else has pods on the node is not held up by the answers.
func TestALabelThatTwoWriteIsWrittenOnceASecond(t *testing.T) {
	w := town(t, given.Probe("idle", func(p *appsv1alpha1.PodContainerProbe) {
		p.MarkerPolicy[0].Labels = map[string]string{"example.com/idle": "yes"}
	}))
	w.result(appsv1alpha1.ProbeSucceeded, "ok")
	marks := 0
	w.AfterWrite = func(write simulation.Write) {
		if write.Key.Kind == "Pod" && write.Subresource == "" {
			marks++
			w.Change(write.Key, func(o client.Object) { o.GetLabels()["example.com/idle"] = "no" })
		}
	}
	w.Change(podKey("shop", "a"), func(o client.Object) { o.GetLabels()["example.com/idle"] = "no" })
	for end := w.Now().Add(10 * time.Second); w.Now().Before(end); w.Pass(50 * time.Millisecond) {
		w.Deliver(1 << 20)
		if _, err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if marks < 5 || marks > 12 {
		t.Errorf("%d writes in ten seconds", marks)
	}
}
