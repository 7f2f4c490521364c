package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// PPM-050 (part), PPM-051 (part), PPM-055, PPM-065 (part), PPM-142: the first pods of a node that becomes
// ready are probed, without another event of theirs.
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
		t.Errorf("probes of the node: got %q, want a m#idle, and the marker held by %s", got, pub.ProbeCleanup)
	}
}

// PPM-057 (part), PPM-149 (part): deleting b leaves the probes of ab; nodes without matching pods are
// covered, too.
func TestDeletingAPodProbeMarkerLeavesThoseOfSimilarNames(t *testing.T) {
	w := town(t)
	w.put(given.Marker("b", given.Probe("idle")))
	w.put(given.Marker("ab", given.Probe("idle", func(p *appsv1alpha1.PodContainerProbe) { p.PodConditionType = "example.com/ab" })))
	w.quiet()
	w.EndGracefully(markerKey("shop", "b"))
	w.quiet()
	if got := w.names(); !slices.Equal(got, []string{"a ab#idle"}) || w.get("shop", "b") != nil {
		t.Errorf("probes of the node: got %q, want a ab#idle, and marker b gone", got)
	}
}

// What another manager left is taken over: the finalizer that is there, and lists in its own order. Nothing
// is written, so no probe begins anew.
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
		t.Errorf("number of writes: got %d, want at most %d\n%v", len(w.Writes), writes, w.Writes[writes:])
	}
}

// PPM-053 (part): ports of pods that the caches do not keep are read once for each pod; a name that is none
// is told once, whatever happens then.
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
	got := w.names()
	if !slices.Equal(got, []string{"a m#x"}) {
		t.Errorf("names: got %q, want %q", got, []string{"a m#x"})
	}
	if w.live != 1 {
		t.Errorf("live reads: got %d, want 1", w.live)
	}
	told := 0
	for _, event := range w.told {
		if strings.Contains(event, "container app has no port none") && strings.HasPrefix(event, "m Warning ProbeNotPossible") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told: got %d, want 1\n%q", told, w.told)
	}
	if c := w.condition("example.com/y"); c == nil {
		t.Error("there is no condition example.com/y")
	} else if c.Status != corev1.ConditionFalse {
		t.Errorf("condition example.com/y: got %q, want %q\n%+v", c.Status, corev1.ConditionFalse, c)
	} else if !strings.Contains(c.Message, "not probed") {
		t.Errorf("message: got %q, want it to contain %q\n%+v", c.Message, "not probed", c)
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

// PPM-069 (part), PPM-143 (part): annotations of pods that the caches do not keep are looked at once for each
// result, and written only if they differ.
func TestPodsAreNotPatchedAgainAndAgain(t *testing.T) {
	w := town(t, given.Probe("idle", func(p *appsv1alpha1.PodContainerProbe) {
		p.MarkerPolicy[0].Annotations = map[string]string{"example.com/note": "idle"}
	}))
	w.result(appsv1alpha1.ProbeSucceeded, "ok")
	if got := w.pod("shop", "a").Annotations["example.com/note"]; got != "idle" {
		t.Fatalf("annotation example.com/note of pod a: got %q, want %q\n%v", got, "idle",
			w.pod("shop", "a").Annotations)
	}
	if w.live != 1 {
		t.Fatalf("live reads: got %d, want 1\n%v", w.live, w.pod("shop", "a").Annotations)
	}
	writes := len(w.Writes)
	for range 5 { // only the times are new
		w.Pass(10 * time.Minute)
		w.result(appsv1alpha1.ProbeSucceeded, "ok")
	}
	if len(w.Writes) > writes {
		t.Errorf("number of writes: got %d, want at most %d\n%v", len(w.Writes), writes, w.Writes[writes:])
	}
	if w.live != 1 {
		t.Errorf("live reads: got %d, want 1\n%v", w.live, w.Writes[writes:])
	}
	w.result(appsv1alpha1.ProbeFailed, "no")
	if _, there := w.pod("shop", "a").Annotations["example.com/note"]; there {
		t.Errorf("there: got true, want false\n%v", w.pod("shop", "a").Annotations)
	}
	if w.live != 2 {
		t.Errorf("live reads: got %d, want 2\n%v", w.live, w.pod("shop", "a").Annotations)
	}
}

// PPM-072 (part), report of users of the reference: while a container is being replaced the condition does
// not go on telling of the one before; its labels stay, and a daemon that begins anew changes nothing.
func TestAReplacedContainerIsNotTakenForTheOneBefore(t *testing.T) {
	w := town(t, given.Probe("idle"))
	started := func(after time.Duration) {
		w.Change(podKey("shop", "a"), func(o client.Object) {
			o.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "c://" + w.Now().String(),
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.Now().Add(after))}}}}
		})
	}
	started(-time.Minute)
	w.result(appsv1alpha1.ProbeSucceeded, "ok")
	w.Pass(time.Minute)
	w.result(appsv1alpha1.ProbeUnknown, "")
	c := w.condition("example.com/idle")
	if c.Status != corev1.ConditionTrue {
		t.Errorf("status: got %q, want %q\n%+v", c.Status, corev1.ConditionTrue, c)
	}
	if c.Message != "ok" {
		t.Errorf("message: got %q, want %q\n%+v", c.Message, "ok", c)
	}
	started(0)
	w.Pass(time.Second)
	w.result(appsv1alpha1.ProbeUnknown, "")
	if c := w.condition("example.com/idle"); c.Status != corev1.ConditionFalse {
		t.Errorf("status: got %q, want %q\n%+v\n%v", c.Status, corev1.ConditionFalse, c, w.pod("shop", "a").Labels)
	} else if !strings.Contains(c.Message, "was replaced") {
		t.Errorf("message: got %q, want it to contain %q\n%+v\n%v", c.Message, "was replaced", c, w.pod("shop", "a").Labels)
	} else if got := w.pod("shop", "a").Labels["idle"]; got != "true" {
		t.Errorf("label idle of pod a: got %q, want %q\n%+v\n%v", got, "true", c, w.pod("shop", "a").Labels)
	}
	w.result(appsv1alpha1.ProbeFailed, "not yet")
	if c := w.condition("example.com/idle"); c.Message != "not yet" {
		t.Errorf("message: got %q, want %q\n%+v", c.Message, "not yet", c)
	} else if got := w.pod("shop", "a").Labels["idle"]; got != "false" {
		t.Errorf("label idle of pod a: got %q, want %q\n%+v", got, "false", c)
	}
}

// The command of a probe was changed to one that there is not, so that nothing is known any more of its pods,
// whose condition is True from before: they are not read from the API server at each event of their node.
func TestPodsOfWhichNothingIsKnownAreNotReadAgainAndAgain(t *testing.T) {
	w := town(t, given.Probe("idle"))
	started := func(restarts int32) {
		w.Change(podKey("shop", "a"), func(o client.Object) {
			o.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: restarts,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.Now())}}}}
		})
	}
	started(0)
	w.Pass(time.Second)
	w.result(appsv1alpha1.ProbeSucceeded, "ok")
	w.live = 0
	for range 10 {
		w.Pass(time.Minute)
		w.result(appsv1alpha1.ProbeUnknown, fmt.Sprint("the probe cannot be carried out: ", w.Rand.Int()))
	}
	if w.live > 1 {
		t.Errorf("live reads: got %d, want at most 1", w.live)
	}
	if got := w.condition("example.com/idle").Status; got != corev1.ConditionTrue {
		t.Errorf(`condition example.com/idle: got %q, want %q`, got, corev1.ConditionTrue)
	}
	started(1) // what the node tells does not change
	w.quiet()
	if c := w.condition("example.com/idle"); c.Status != corev1.ConditionFalse {
		t.Errorf("status: got %q, want %q\n%+v", c.Status, corev1.ConditionFalse, c)
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
	if c := w.condition("example.com/idle"); c.Status != corev1.ConditionTrue {
		t.Errorf("status: got %q, want %q\n%+v\n%v", c.Status, corev1.ConditionTrue, c, w.told)
	} else if len(w.told) != 1 {
		t.Errorf("number told: got %d, want 1\n%+v\n%v", len(w.told), c, w.told)
	} else if !strings.HasPrefix(w.told[0], "n Warning ProbeConditionConflict") {
		t.Errorf("told first: got %q, want it to begin with %q\n%+v\n%v", w.told[0], "n Warning ProbeConditionConflict", c, w.told)
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
		return fmt.Errorf("%w: budget b allows 0 more", reconcile.ErrStalePlan)
	}
	return nil
}

// dying is a world with pod a, whose liveness probe has failed.
func dying(t *testing.T, guard *budget) *world {
	t.Helper()
	w := newWorld(t, 1, Options{Liveness: true})
	w.BeforeWrite = nil
	w.r.Nodes.Guard = guard
	w.Store(nodeKey("n"), given.Node("n"))
	w.add("a", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "web", Controller: new(true)}}
		p.Annotations = map[string]string{pub.LivenessProbes: `[{"name":"app","livenessProbe":{"exec":{"command":["/alive"]}}}]`}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.Now())}}}}
	})
	w.play(5 * time.Second)
	if got := w.names(); !slices.Equal(got, []string{"a a-app"}) {
		t.Fatalf("names: got %q, want %q", got, []string{"a a-app"})
	}
	w.Change(listKey("n"), func(o client.Object) {
		result := given.Result("a-app", appsv1alpha1.ProbeFailed, "dead")
		result.LastTransitionTime = metav1.NewTime(w.Now())
		o.(*appsv1alpha1.NodePodProbe).Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{given.Results(w.pod("shop", "a"), result)}
	})
	return w
}

// play lets the manager act for a while.
func (w *world) play(d time.Duration) {
	for end := w.Now().Add(d); w.Now().Before(end); w.Pass(50 * time.Millisecond) {
		w.Events(100)
		w.Manage()
	}
}

func (w *world) requests() (names []string) {
	for _, object := range w.List("ContainerRecreateRequest", false) {
		names = append(names, object.GetName())
	}
	return names
}

// PPM-121 (part): a failed liveness probe restarts its container by one request, once budgets allow it; a
// request that was made stays the only one.
func TestAFailedLivenessProbeAsksForOneRestart(t *testing.T) {
	guard := &budget{refuse: true}
	w := dying(t, guard)
	if w.play(2 * time.Second); len(w.requests()) > 0 || guard.asked == 0 {
		t.Fatalf("while budgets refuse: got requests %q, want none; asked %d times", w.requests(), guard.asked)
	}
	guard.refuse = false
	w.play(time.Minute)
	if got := w.requests(); len(got) != 1 || got[0] != fmt.Sprintf("shop/liveness-%s-app-0", w.pod("shop", "a").UID) && got[0] != fmt.Sprintf("liveness-%s-app-0", w.pod("shop", "a").UID) {
		t.Errorf("requests to restart the container: got %q, want one", got)
	}
	asked := guard.asked
	w.Pass(time.Minute)
	if w.play(2 * time.Second); guard.asked != asked || len(w.requests()) != 1 {
		t.Errorf("asked %d times, want %d as before; requests: got %q, want one", guard.asked, asked, w.requests())
	}
	if last := w.told[len(w.told)-1]; !strings.Contains(last, "LivenessProbeFailed: container app is restarted") {
		t.Errorf("told last: got %q, want it to contain %q\n%q", last, "LivenessProbeFailed: container app is restarted", w.told)
	}
}

// A database is down, the liveness probes of all its clients fail, and their budget allows no restart: the
// API server is not asked five times a second for each of them whether it does by now, and the pod says once
// what its restart waits for.
func TestABudgetThatHoldsARestartIsNotAskedAgainAndAgain(t *testing.T) {
	guard := &budget{refuse: true}
	w := dying(t, guard)
	if w.play(20 * time.Second); guard.asked != 1 {
		t.Errorf("asked %d times in 20 seconds", guard.asked)
	}
	if w.play(50 * time.Second); guard.asked < 2 || guard.asked > 4 {
		t.Errorf("asked %d times in 70 seconds, want 2 to 4", guard.asked)
	}
	if len(w.told) != 1 {
		t.Errorf("number told: got %d, want 1\n%q", len(w.told), w.told)
	} else if !strings.Contains(w.told[0], "container app is not restarted yet, though its liveness probe failed") {
		t.Errorf("told first: got %q, want it to contain %q\n%q", w.told[0],
			"container app is not restarted yet, though its liveness probe failed", w.told)
	} else if !strings.Contains(w.told[0], "budget b allows 0 more") {
		t.Errorf("told first: got %q, want it to contain %q\n%q", w.told[0], "budget b allows 0 more", w.told)
	}
	done, err := w.r.Nodes.pass(t.Context(), types.NamespacedName{Name: "n"}, ownerOf("n"))
	if err != nil {
		t.Errorf("a budget that allows more does not wake it: unexpected error: %v\n%+v", err, done)
	} else if !done.HeldByBudget {
		t.Errorf("a budget that allows more does not wake it: held: got false, want true\n%+v\n%v", done, err)
	}
}

// The container ends by itself and starts anew while its budget is asked, and the caches do not show it: the
// new one is not restarted for the old.
func TestAContainerThatHasJustRestartedIsNotRestarted(t *testing.T) {
	w := dying(t, &budget{})
	w.Deliver(1 << 20)
	w.Change(podKey("shop", "a"), func(o client.Object) {
		c := &o.(*corev1.Pod).Status.ContainerStatuses[0]
		c.RestartCount, c.State.Running.StartedAt = 1, metav1.NewTime(w.Now())
	})
	if _, err := w.r.Nodes.pass(t.Context(), types.NamespacedName{Name: "n"}, ownerOf("n")); err != nil {
		t.Errorf("unexpected error: %v\n%q", err, w.requests())
	} else if got := len(w.requests()); got > 0 {
		t.Errorf("requests: got %d, want none\n%v\n%q", got, err, w.requests())
	}
}

// The pods of one tenant cannot be marked, since a policy refuses it; a pod of another one changed just when
// it was marked. It is marked soon after, and does not wait as long as the first one is not tried again.
func TestWhoCannotBeMarkedDoesNotHoldUpOthers(t *testing.T) {
	w := town(t, given.Probe("idle"))
	w.add("b")
	w.quiet()
	conflicts := 3
	w.Answer = func(r *simulation.Request) error {
		switch {
		case r.Verb != "patch" || r.Key.Kind != "Pod":
		case r.Key.Name == "shop/a":
			return apierrors.NewForbidden(corev1.Resource("pods"), "a", errors.New("refused by policy"))
		case conflicts > 0:
			conflicts--
			return apierrors.NewConflict(corev1.Resource("pods"), "b", errors.New("it changed"))
		}
		return nil
	}
	w.Change(listKey("n"), func(o client.Object) {
		result := given.Result("m#idle", appsv1alpha1.ProbeSucceeded, "ok")
		o.(*appsv1alpha1.NodePodProbe).Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{given.Results(w.pod("shop", "a"), result), given.Results(w.pod("shop", "b"), result)}
	})
	w.Deliver(1 << 20)
	done, err := w.r.Nodes.pass(t.Context(), types.NamespacedName{Name: "n"}, ownerOf("n"))
	if err == nil {
		t.Errorf("error: got nil, want an error; again after %s, %v", done.After, err)
	} else if done.After == 0 {
		t.Errorf("time to the next pass: got %v, want another value; again after %s, %v", done.After, done.After, err)
	} else if done.After > time.Second {
		t.Errorf("time to the next pass: got %v, want at most %v; again after %s, %v", done.After, time.Second, done.After, err)
	}
}

// PPM-060 (part): the node writes results each second, and the caches of the manager are seconds behind: it
// is told of a new pod all the same.
func TestANodeThatWritesResultsAllTheTimeIsTold(t *testing.T) {
	w := town(t, given.Probe("idle"))
	w.add("b")
	w.Deliver(1 << 20)
	w.result(appsv1alpha1.ProbeSucceeded, "ok")
	w.add("c")
	w.Deliver(1 << 20)
	w.Change(listKey("n"), func(o client.Object) { o.SetAnnotations(map[string]string{"written": "by its daemon"}) }) // and no event of it comes
	for range 2 {
		if _, err := w.r.Nodes.pass(t.Context(), types.NamespacedName{Name: "n"}, ownerOf("n")); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.names(); len(got) != 3 {
		t.Errorf("number of results: got %d, want 3\n%s", len(got), got)
	}
}

// The list of a node cannot be written, for whatever reason: the results of what it probes already come to
// its pods all the same.
func TestAListThatCannotBeWrittenHoldsUpNoResults(t *testing.T) {
	w := town(t, given.Probe("idle"))
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "patch" && r.Key.Kind == "NodePodProbe" {
			return apierrors.NewForbidden(corev1.Resource("nodepodprobes"), "n", errors.New("refused by policy"))
		}
		return nil
	}
	w.add("b")
	w.Change(listKey("n"), func(o client.Object) {
		o.(*appsv1alpha1.NodePodProbe).Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{given.Results(w.pod("shop", "a"), given.Result("m#idle", appsv1alpha1.ProbeSucceeded, "ok"))}
	})
	w.Deliver(1 << 20)
	if _, err := w.r.Nodes.pass(t.Context(), types.NamespacedName{Name: "n"}, ownerOf("n")); err == nil {
		t.Errorf("error: got nil, want an error\n%v", w.pod("shop", "a").Labels)
	} else if got := w.pod("shop", "a").Labels["idle"]; got != "true" {
		t.Errorf("label idle of pod a: got %q, want %q\n%v\n%v", got, "true", err, w.pod("shop", "a").Labels)
	}
}

// A pod with a named port is gone before its first pass: nobody is told that its container has no such port.
func TestAPodThatIsGoneHasNoFaults(t *testing.T) {
	w := town(t, given.Probe("x", func(p *appsv1alpha1.PodContainerProbe) {
		p.Probe = appsv1alpha1.ContainerProbeSpec{ContainerProbeHandler: appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}}}
	}))
	w.told = nil
	w.add("b", func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}
	})
	w.Deliver(1 << 20)
	w.Remove(podKey("shop", "b"))
	if _, err := w.r.Nodes.pass(t.Context(), types.NamespacedName{Name: "n"}, ownerOf("n")); err != nil {
		t.Errorf("unexpected error: %v\n%q", err, w.told)
	} else if len(w.told) > 0 {
		t.Errorf("told: got %q, want none\n%v", w.told, err)
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
	markers := w.r.Markers.controller()
	for _, name := range []string{"m000", "m500", "m500"} {
		marker := w.get("shop", name)
		s, err := markers.Begin(t.Context(), client.ObjectKeyFromObject(marker), marker.UID)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.r.Markers.warn(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.told) != 1 {
		t.Errorf("number told: got %d, want 1\n%q", len(w.told), w.told)
	} else if !strings.HasPrefix(w.told[0], "m500 Warning TooManyPodProbeMarkers") {
		t.Errorf("told first: got %q, want it to begin with %q\n%q", w.told[0], "m500 Warning TooManyPodProbeMarkers", w.told)
	}
}

// Somebody else writes the label that a probe gives, each time that it was given: who else has pods on the
// node is not held up by the answers.
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
	if marks < 5 {
		t.Errorf("marks: got %d, want at least 5", marks)
	}
	if marks > 12 {
		t.Errorf("marks: got %d, want at most 12", marks)
	}
}

// An annotation is removed, but the answer is lost, and the next result asks for it again: it is written, although
// the pod was found to have it before.
func TestAnAnnotationWhoseRemovalWasLostIsWrittenAgain(t *testing.T) {
	w := town(t, given.Probe("idle", func(p *appsv1alpha1.PodContainerProbe) {
		p.MarkerPolicy[0].Annotations = map[string]string{"example.com/note": "idle"}
	}))
	w.result(appsv1alpha1.ProbeSucceeded, "ok")
	note := func() string { return w.pod("shop", "a").Annotations["example.com/note"] }
	if note() != "idle" {
		t.Fatalf("annotation: got %q, want that of the result", note())
	}
	tell := func(state appsv1alpha1.ProbeState) {
		w.Change(listKey("n"), func(o client.Object) {
			o.(*appsv1alpha1.NodePodProbe).Status.PodProbeStatuses[0].ProbeStates[0].State = state
		})
	}
	removed := false
	w.AfterWrite = func(write simulation.Write) {
		if write.Key.Kind == "Pod" && !removed && note() == "" {
			removed = true
			tell(appsv1alpha1.ProbeSucceeded)
		}
	}
	w.Faults.Lose = 1
	tell(appsv1alpha1.ProbeFailed)
	w.play(10 * time.Second)
	w.quiet()
	if !removed || note() != "idle" {
		t.Errorf("annotation: got %q, want it again; removed: %t", note(), removed)
	}
}
