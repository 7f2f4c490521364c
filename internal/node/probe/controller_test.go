package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

// node is a daemon with a runtime that answers over its socket.
type node struct {
	*reconciler
	server *fakecri.Server
	set    *runtime.Set
	events *record.FakeRecorder
	client client.Client
}

func newNode(t testing.TB, npp *appsv1alpha1.NodePodProbe, watched bool, pods ...client.Object) *node {
	t.Helper()
	server := fakecri.Start(t)
	runtimes := runtime.NewSet(runtime.Options{Root: server.Root()})
	runtimes.Look(t.Context())
	if err := runtimes.Ready(); err != nil {
		t.Fatal(err)
	}
	scheme := k8sruntime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(npp).WithObjects(append(pods, npp)...).Build()
	events := record.NewFakeRecorder(1000)
	r := newReconciler("n", c, events, clock.RealClock{})
	r.containers = newContainers(set{runtimes}, c, watched, time.Now)
	r.containers.listed = time.Second
	r.attempts = newAttempter(func(id string) (Commands, error) { return runtimes.ForContainer(id) }).attempt
	return &node{r, server, runtimes, events, c}
}

// play runs the daemon until the test ends.
func (n *node) play(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var ends sync.WaitGroup
	ends.Go(func() { _ = n.Start(ctx) })
	ends.Go(func() {
		for ctx.Err() == nil {
			result, err := n.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: "n"}})
			if err != nil && ctx.Err() == nil {
				t.Errorf("a pass of the daemon: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-n.changed:
			case <-time.After(min(max(result.RequeueAfter, 10*time.Millisecond), 100*time.Millisecond)):
			}
		}
	})
	t.Cleanup(func() { cancel(); ends.Wait() })
}

// await waits until the status has the states of the probes, as "name state message".
func (n *node) await(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		o := &appsv1alpha1.NodePodProbe{}
		if err := n.client.Get(t.Context(), client.ObjectKey{Name: "n"}, o); err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, pod := range o.Status.PodProbeStatuses {
			for _, state := range pod.ProbeStates {
				got = append(got, strings.TrimSpace(fmt.Sprint(state.Name, " ", state.State, " ", state.Message)))
			}
		}
		if slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("status %q, want %q", got, want)
}

func container(id string, change ...func(*fakecri.Container)) fakecri.Container {
	c := fakecri.Container{ID: id, Name: "app", Namespace: "db", Pod: "pg-0", UID: "pod", State: cri.ContainerState_CONTAINER_RUNNING,
		Created: time.Now().Add(-time.Minute), Started: time.Now().Add(-time.Minute)}
	for _, f := range change {
		f(&c)
	}
	return c
}

// PPM-083, PPM-084, PPM-085, PPM-088 (part), PPM-095, PPM-097: two probes of one container, by command,
// through the runtime's own socket. Each has its result and its event; the container ends, and comes back
// with another answer.
func TestTwoProbesOfOneContainer(t *testing.T) {
	n := newNode(t, object(spec(named("role#primary")), spec(named("idle#idle"), func(p *appsv1alpha1.ContainerProbe) {
		p.Probe.Exec.Command = []string{"/idle"}
	})), true)
	primary := true
	var mu sync.Mutex
	n.server.OnExec = func(_ string, command []string) (string, int32, error) {
		mu.Lock()
		defer mu.Unlock()
		if command[0] == "/probe" && primary {
			return "yes", 0, nil
		}
		return "", 1, nil
	}
	n.server.Add(container("a"))
	n.play(t)
	n.await(t, "role#primary Succeeded yes", "idle#idle Failed")
	n.server.Add(container("a", func(c *fakecri.Container) { c.State = cri.ContainerState_CONTAINER_EXITED }))
	n.await(t, "role#primary Failed container app is not running", "idle#idle Failed container app is not running")
	mu.Lock()
	primary = false
	mu.Unlock()
	n.server.Add(container("b", func(c *fakecri.Container) { c.RestartCount = 1 }))
	n.await(t, "role#primary Failed", "idle#idle Failed")
	n.server.Remove("a")
	n.server.Remove("b")
	if calls := n.server.Calls("ExecSync"); calls[0].ID != "a" {
		t.Errorf("the first command: got %+v, want it in container a", calls)
	}
	events := map[string]int{}
	for len(n.events.Events) > 0 {
		events[<-n.events.Events]++
	}
	if n := events["Normal KruiseProbeSucceeded probe role#primary: yes"]; n != 1 {
		t.Errorf("events of the success of role#primary: got %d, want 1: %v", n, events)
	}
	if n := events["Warning KruiseProbeFailed probe idle#idle: "]; n != 2 {
		t.Errorf("events of the failure of idle#idle: got %d, want 2: %v", n, events)
	}
}

// nothingIsSentElsewhere: a NodePodProbe says where a pod is, and somebody may have written it by hand.
// Nothing is sent to an address that is not the pod's. Where pods are not watched the daemon asks the API
// server, once in a while.
func nothingIsSentElsewhere(t *testing.T) {
	npp := object(spec(func(p *appsv1alpha1.ContainerProbe) {
		p.Probe.ContainerProbeHandler = appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}}
	}))
	for _, watched := range []bool{true, false} {
		for ip, want := range map[string]bool{"10.0.0.1": true, "169.254.169.254": false, "": false} {
			for _, uid := range []types.UID{"pod", "another"} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg-0", UID: uid}, Status: corev1.PodStatus{PodIP: ip}}
				n := newNode(t, npp.DeepCopy(), watched, pod)
				n.server.Add(container("a"))
				sent := false
				n.attempts = func(context.Context, *Definition, string) Attempt { sent = true; return Attempt{Outcome: Success} }
				n.define(npp)
				if err := n.probe(t.Context(), Key{"pod", "role#primary"}); err != nil {
					t.Fatal(err)
				}
				if wanted := want && uid == "pod"; sent != wanted {
					t.Errorf("address %q of pod %s, watched %t: sent %t, want %t",
						ip, uid, watched, sent, wanted)
				}
			}
		}
	}
}

// PPM-087: as long as the startup probe of a container has not succeeded, it is left alone.
func TestAContainerThatStartsIsLeftAlone(t *testing.T) {
	for started, want := range map[bool]bool{false: false, true: true} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg-0", UID: "pod"}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "containerd://a", Started: &started}}
		n := newNode(t, object(spec()), true, pod)
		n.server.Add(container("a"))
		n.define(object(spec()))
		if _, due, _, err := n.meet(t.Context(), Key{"pod", "role#primary"}, false); err != nil {
			t.Errorf("meeting a container that has started (%t): %v", started, err)
		} else if due != want {
			t.Errorf("the probe of a container that has started (%t) is due: got %t, want %t",
				started, due, want)
		}
	}
}

// The liveness probe of a container that has a startup probe fails while that goes on: the container is left
// alone, also where pods are not watched.
func TestALivenessProbeDoesNotFailBeforeTheStartupProbeSucceeds(t *testing.T) {
	for _, watched := range []bool{true, false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg-0", UID: "pod"}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "containerd://a", Started: new(false)}}
		npp := object(spec(named("pg-0-app")))
		n := newNode(t, npp, watched, pod)
		n.server.Add(container("a"))
		n.attempts = func(context.Context, *Definition, string) Attempt { return Attempt{Failure, "no"} }
		n.define(npp)
		key := Key{"pod", "pg-0-app"}
		if err := n.probe(t.Context(), key); err != nil {
			t.Errorf("probing, pods watched %t: %v", watched, err)
		}
		if n.probers[key].State == "Failed" {
			t.Errorf("the liveness probe has failed before the startup probe succeeded, pods watched %t",
				watched)
		}
	}
}

// PPM-099: of two runtimes of a node the one is asked that has the container. PPM-141 (part): a container
// that is not there yet is nothing.
func TestTheRuntimeOfTheContainerIsAsked(t *testing.T) {
	npp := object(spec())
	npp.Spec.PodProbes = append(npp.Spec.PodProbes, appsv1alpha1.PodProbe{Namespace: "db", Name: "pg-1", UID: "other",
		Probes: []appsv1alpha1.ContainerProbe{spec()}}, appsv1alpha1.PodProbe{Namespace: "db", Name: "pg-2", UID: "none",
		Probes: []appsv1alpha1.ContainerProbe{spec()}})
	n := newNode(t, npp, true)
	second := &fakecri.Server{Name: "cri-o", Path: filepath.Join(n.server.Root(), "crio", "crio.sock")}
	if err := os.MkdirAll(filepath.Dir(second.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	second.Listen(t)
	t.Cleanup(second.Close)
	n.set.Look(t.Context())
	for server, name := range map[*fakecri.Server]string{n.server: "containerd", second: "cri-o"} {
		server.Set(func(s *fakecri.Server) {
			s.OnExec = func(string, []string) (string, int32, error) { return name, 0, nil }
		})
	}
	n.server.Add(container("a"))
	second.Add(container("b", func(c *fakecri.Container) { c.Pod, c.UID = "pg-1", "other" }))
	n.play(t)
	n.await(t, "role#primary Succeeded containerd", "role#primary Succeeded cri-o")
}

// PPM-098: an attempt that panics, or never ends, is nobody else's.
func TestAPanicIsOfOneProbe(t *testing.T) {
	n := newNode(t, object(spec(named("a#panics")), spec(named("a#hangs")), spec(named("a#works"))), true)
	n.server.Add(container("a"))
	n.attempts = func(ctx context.Context, d *Definition, _ string) Attempt {
		switch d.Name {
		case "a#panics":
			panic("on purpose")
		case "a#hangs":
			<-ctx.Done()
		}
		return Attempt{Outcome: Success}
	}
	n.play(t)
	n.await(t, "a#works Succeeded")
}

// Somebody mistyped a command: his pod says so once, for he cannot read the NodePodProbe, and no condition
// tells.
func TestAProbeThatCannotBeCarriedOutIsToldOfThePod(t *testing.T) {
	n := newNode(t, object(spec()), true)
	n.server.Add(container("a"))
	n.define(object(spec()))
	for range 5 {
		if err := n.probe(t.Context(), Key{"pod", "role#primary"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(n.events.Events) != 1 {
		t.Fatalf("events of the pod: got %d, want 1", len(n.events.Events))
	}
	told := <-n.events.Events
	const want = "Warning KruiseProbeError probe role#primary: the probe cannot be carried out: "
	if !strings.HasPrefix(told, want) {
		t.Errorf("event of the pod: got %q, want %q at its beginning", told, want)
	}
	if !strings.Contains(told, `"/probe" not found`) {
		t.Errorf("event of the pod: got %q, want that the command is not found", told)
	}
}

// PPM-090: as long as a pod has no address, its probes by network are not carried out and have no result;
// that by command is, and theirs are once it has one.
func TestAPodWithoutAnAddress(t *testing.T) {
	network := func(h appsv1alpha1.ContainerProbeHandler) func(*appsv1alpha1.ContainerProbe) {
		return func(p *appsv1alpha1.ContainerProbe) { p.Probe.ContainerProbeHandler = h }
	}
	npp := object(spec(named("m#command")),
		spec(named("m#tcp"), network(appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}})),
		spec(named("m#http"), network(appsv1alpha1.ContainerProbeHandler{HTTPGet: &appsv1alpha1.HTTPGetAction{Port: intstr.FromInt32(1)}})))
	npp.Spec.PodProbes[0].IP = ""
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg-0", UID: "pod"}}
	n := newNode(t, npp, true, pod)
	n.server.Add(container("a"))
	var sent atomic.Int32
	n.attempts = func(_ context.Context, d *Definition, _ string) Attempt {
		if d.network() {
			sent.Add(1)
		}
		return Attempt{Success, "yes"}
	}
	n.define(npp)
	for _, p := range npp.Spec.PodProbes[0].Probes {
		if err := n.probe(t.Context(), Key{"pod", p.Name}); err != nil {
			t.Fatal(err)
		}
	}
	n.play(t)
	n.await(t, "m#command Succeeded yes")
	if sent.Load() > 0 {
		t.Error("a probe by network was carried out")
	}
	pod.Status.PodIP = "10.0.0.1"
	if err := errors.Join(n.client.Status().Update(t.Context(), pod), n.client.Get(t.Context(), client.ObjectKeyFromObject(npp), npp)); err != nil {
		t.Fatal(err)
	}
	npp.Spec.PodProbes[0].IP, npp.Generation = pod.Status.PodIP, 2
	if err := n.client.Update(t.Context(), npp); err != nil {
		t.Fatal(err)
	}
	n.await(t, "m#command Succeeded yes", "m#tcp Succeeded yes", "m#http Succeeded yes")
}

// PPM-100: probes of a node take no more than they may, whoever asks for how many.
func TestWhatProbesOfANodeTake(t *testing.T) {
	t.Run("one tenant's probes do not hold up another's", oneTenantsProbesDoNotHoldUpAnothers)
	t.Run("a tenant with some namespaces does not hold up another", aTenantWithSomeNamespaces)
	t.Run("the pace of a node", thePaceOfANode)
	t.Run("places of a node", placesOfANode)
	t.Run("the runtime is not asked for each attempt", theRuntimeIsNotAskedForEachAttempt)
	if d := definition(func(p *appsv1alpha1.ContainerProbe) { p.Probe.TimeoutSeconds = 301 }); d.Timeout != 300*time.Second {
		t.Errorf("timeout of a probe that asks for 301s: got %s, want 5m", d.Timeout)
	}
}

// theRuntimeIsNotAskedForEachAttempt: what a pod is made of is asked once in ten seconds, when the status of
// the pod shows another container, and before a result becomes Failed.
func theRuntimeIsNotAskedForEachAttempt(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "pg-0", UID: "pod"}}
	n := newNode(t, object(spec()), true, pod)
	n.server.Add(container("a"))
	lists, now, outcome := 0, time.Now(), Success
	n.containers.runtimes, n.containers.listed, n.containers.now = counted{n.containers.runtimes, &lists}, listed, func() time.Time { return now }
	n.attempts = func(context.Context, *Definition, string) Attempt { return Attempt{outcome, "x"} }
	n.define(object(spec()))
	asked := func(what string, attempts, want int) {
		t.Helper()
		before := lists
		for range attempts {
			if err := n.probe(t.Context(), Key{"pod", "role#primary"}); err != nil {
				t.Fatal(err)
			}
		}
		if lists-before != want {
			t.Errorf("%s: %d lists for %d attempts, want %d", what, lists-before, attempts, want)
		}
	}
	asked("the first", 100, 1)
	now = now.Add(9 * time.Second)
	asked("nine seconds later", 100, 0)
	now = now.Add(time.Second)
	asked("ten seconds later", 100, 1)
	shown := pod.DeepCopy()
	shown.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "a"}}
	if err := n.client.Status().Update(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
	asked("another container in the status", 10, 1)
	outcome = Failure
	asked("it fails", 10, 1)
}

type counted struct {
	Runtimes
	lists *int
}

func (c counted) Containers(ctx context.Context, pod string) ([]runtime.Container, error) {
	*c.lists++
	return c.Runtimes.Containers(ctx, pod)
}

// A tenant has many probes on every node whose results turn each second: nodes do not write a megabyte a
// second each. Results of a few are written soon.
func TestResultsOfManyProbesAreWrittenLessOften(t *testing.T) {
	for probes, want := range map[int]time.Duration{10: time.Second, 2000: 4 * time.Second} {
		npp := object()
		npp.Spec.PodProbes[0].Probes = nil
		for i := range probes {
			npp.Spec.PodProbes[0].Probes = append(npp.Spec.PodProbes[0].Probes, spec(named(fmt.Sprint("m#", i))))
		}
		n := newNode(t, npp, true)
		by := clocktesting.NewFakeClock(noon)
		n.clock, n.schedule = by, NewSchedule(noon)
		writes := 0
		turn := func() {
			for _, p := range n.probers {
				state := appsv1alpha1.ProbeSucceeded
				if p.State == state {
					state = appsv1alpha1.ProbeFailed
				}
				p.set(state, strings.Repeat("x", 100), by.Now())
			}
		}
		n.define(npp)
		for range 60 {
			turn()
			before := n.written
			if _, err := n.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n"}}); err != nil {
				t.Fatal(err)
			}
			if !n.written.Equal(before) {
				writes++
			}
			by.Step(time.Second)
		}
		if every := time.Minute / time.Duration(max(writes, 1)); every < want || every > 3*want {
			t.Errorf("results of %d probes are written every %s, want about %s", probes, every, want)
		}
	}
}

// Results that cannot be written are tried less and less often, not at the shortest pause for ever (ND-059 (part),
// OPS-106 (part)).
func TestResultsThatCannotBeWrittenAreTriedLessAndLessOften(t *testing.T) {
	npp := object(spec(named("m#p")))
	n := newNode(t, npp, true)
	by := clocktesting.NewFakeClock(noon)
	n.clock, n.schedule = by, NewSchedule(noon)
	tries := 0
	n.reconciler.client = interceptor.NewClient(n.client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			tries++
			return errors.New("a policy is down")
		},
	})
	n.define(npp)
	for _, p := range n.probers {
		p.set(appsv1alpha1.ProbeSucceeded, "", by.Now())
	}
	request := ctrl.Request{NamespacedName: types.NamespacedName{Name: "n"}}
	for by.Since(noon) < 10*time.Minute { // as controller-runtime does
		result, err := n.Reconcile(t.Context(), request)
		after := result.RequeueAfter
		if err != nil {
			after = n.backOff.When(request)
		} else {
			n.backOff.Forget(request)
		}
		by.Step(max(after, time.Millisecond))
	}
	if tries < 5 || tries > 20 { // 0.5 s, 1 s, ... 50 s
		t.Errorf("tries in ten minutes: got %d, want 5 to 20", tries)
	}
}

// BenchmarkThousandProbes measures one attempt of each of a thousand probes by command, in 100 pods, with the
// runtime's side of the socket. The goal of 50 m CPU allows 500 us an attempt, with a period of ten seconds.
func BenchmarkThousandProbes(b *testing.B) {
	npp := object()
	npp.Spec.PodProbes = nil
	for i := range 100 {
		pod := appsv1alpha1.PodProbe{Namespace: "db", Name: "pg-0", UID: fmt.Sprint("pod", i), IP: "10.0.0.1"}
		for j := range 10 {
			pod.Probes = append(pod.Probes, spec(named(fmt.Sprint("p#", j))))
		}
		npp.Spec.PodProbes = append(npp.Spec.PodProbes, pod)
	}
	n := newNode(b, npp, true)
	n.server.OnExec = func(string, []string) (string, int32, error) { return "yes", 0, nil }
	for i := range 100 {
		n.server.Add(container(fmt.Sprint("c", i), func(c *fakecri.Container) { c.UID = fmt.Sprint("pod", i) }))
	}
	n.define(npp)
	definitions := Definitions(npp)
	for b.Loop() {
		for i := range definitions {
			if err := n.probe(b.Context(), definitions[i].Key); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*1000), "us/attempt")
}
