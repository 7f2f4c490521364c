package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/podfeatures/sidecarterminator"
	given "github.com/afloat-project/afloat/internal/podfeatures/sidecarterminator/sidecarterminatortest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// bench is a cluster with one pod on a node, caches that keep up, and what the manager told.
type bench struct {
	t *testing.T
	*simulation.Cluster
	r      *Reconciler
	c      *controller
	loop   *reconcile.Loop
	events []string
}

// Event implements reconcile.Recorder.
func (b *bench) Event(about client.Object, kind, reason, message string) {
	b.events = append(b.events, fmt.Sprintf("%s %s %s: %s", about.GetName(), kind, reason, message))
}

func newBench(t *testing.T, pod *corev1.Pod, nodeLabels map[string]string, requests ...*appsv1beta1.ContainerRecreateRequest) *bench {
	b := &bench{t: t, Cluster: simulation.New(1)}
	b.Slim = slim.Any
	b.Begin(given.Noon)
	if err := b.IndexField(t.Context(), &appsv1beta1.ContainerRecreateRequest{}, ofPod, index); err != nil {
		t.Fatal(err)
	}
	b.Store(podKey, pod)
	if nodeLabels != nil {
		b.node(nodeLabels)
	}
	for _, r := range requests {
		b.Store(b.KeyOf("ContainerRecreateRequest", r), r)
	}
	b.r = &Reconciler{API: b.API(), Events: b, terminations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"way", "result"})}
	b.start()
	return b
}

// start starts the passes of a manager that remembers nothing.
func (b *bench) start() {
	b.c = b.r.controller()
	b.loop = b.c.Loop(nil)
}

func (b *bench) node(labels map[string]string) {
	b.Store(simulation.Key{Kind: "Node", Name: "n"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}})
}

// pass makes a pass with caches that show all, and returns when the next one is due.
func (b *bench) pass() (time.Duration, error) {
	b.Deliver(b.Undelivered())
	b.Pass(time.Minute) // passes of one pod are spaced out
	result, err := b.loop.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: podName})
	return result.RequeueAfter, err
}

func (b *bench) passes(n int) {
	b.t.Helper()
	for range n {
		if _, err := b.pass(); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) counted(way sidecarterminator.Way, result string) float64 {
	return testutil.ToFloat64(b.r.terminations.WithLabelValues(string(way), result))
}

var done = given.With("main", given.Ended(0))

// JST-050: one event of each write, and none of passes that write nothing; JST-051 (part): and so are they
// counted.
func TestEventsOfWrites(t *testing.T) {
	virtual := map[string]string{pub.NodeType: pub.VirtualNode}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		node  map[string]string
		event string
		way   sidecarterminator.Way
		count string
	}{
		"a request": {given.Pod(done, given.Sidecar("b", given.Running(0)), given.Sidecar("a", given.Running(0))), map[string]string{},
			"p Normal SidecarTerminator: All main containers are done: stopping sidecars a, b, by ContainerRecreateRequest sidecar-termination-u (CRR)", sidecarterminator.ByRequest, ""},
		"an image": {given.Pod(done, given.ByImage("a", given.Running(0))), virtual,
			"p Normal SidecarTerminator: All main containers are done: stopping sidecar a, by in-place update of the image", sidecarterminator.ByImage, "Replaced"},
		"the phase": {given.Pod(done, given.Ignored("a", given.Running(0)), given.Ignored("b", given.Running(0))), map[string]string{},
			"p Normal SidecarTerminator: All main containers are done: stopping sidecars a, b, by kubelet, for the phase was set ahead", sidecarterminator.ByPhase, "Set"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.pod, test.node)
			b.Answer = admitted(b)
			_, err := b.pass()
			if err != nil {
				t.Fatal(err)
			}
			b.Deliver(b.Undelivered())
			for range 3 {
				if _, err := b.loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: podName}); err != nil {
					t.Fatal(err)
				}
				b.Pass(time.Second)
			}
			if len(b.Writes) != 1 {
				t.Errorf("len(b.Writes): got %d, want 1\n%+v", len(b.Writes), b.Writes)
			}
			if !slices.Equal(b.events, []string{test.event}) {
				t.Errorf("events: got %q, want %q\n%+v", b.events, []string{test.event}, b.Writes)
			}
			if test.count != "" && b.counted(test.way, test.count) != float64(len(test.pod.Spec.Containers)-1) {
				t.Errorf("%s %s: %v", test.way, test.count, b.counted(test.way, test.count))
			}
		})
	}
}

// admitted labels requests as admission does.
func admitted(b *bench) func(*simulation.Request) error {
	return func(r *simulation.Request) error {
		if request, ok := r.Object.(*appsv1beta1.ContainerRecreateRequest); ok && r.Verb == "create" {
			request.Labels = map[string]string{pub.RecreatePodUID: string(b.Get(podKey).GetUID())}
		}
		return nil
	}
}

// JST-036: the images of those that have not ended are set, once; a conflict is tried again soon, and a pod
// that has gone is no error.
func TestImagesOfPodsThatChange(t *testing.T) {
	virtual := map[string]string{pub.NodeType: pub.VirtualNode}
	b := newBench(t, given.Pod(done, given.ByImage("a", given.Running(0)), given.ByImage("b", given.Ended(0))), virtual)
	b.Deliver(b.Undelivered())
	b.Change(podKey, func(o client.Object) { o.SetLabels(map[string]string{"changed": "meanwhile"}) })
	reconcileNow := func() ctrl.Result {
		t.Helper()
		b.Pass(time.Minute)
		result, err := b.loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: podName})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	result := reconcileNow()
	if result.RequeueAfter != reconcile.RetrySoon {
		t.Errorf("requeue after: got %v, want %v\n%v", result.RequeueAfter, reconcile.RetrySoon, result)
	}
	if len(b.Writes) > 0 {
		t.Errorf("writes: got %v, want none\n%v", b.Writes, result)
	}
	b.Deliver(b.Undelivered())
	reconcileNow()
	pod, _ := b.Get(podKey).(*corev1.Pod)
	b.Deliver(b.Undelivered())
	reconcileNow()
	if pod.Spec.Containers[1].Image != "exit:1" {
		t.Errorf("pod.Spec.Containers[1].Image: got %q, want %q\n%+v\n%+v", pod.Spec.Containers[1].Image, "exit:1", pod.Spec.Containers,
			b.Writes)
	} else if pod.Spec.Containers[0].Image != "main:1" {
		t.Errorf("pod.Spec.Containers[0].Image: got %q, want %q\n%+v\n%+v", pod.Spec.Containers[0].Image, "main:1", pod.Spec.Containers,
			b.Writes)
	} else if pod.Spec.Containers[2].Image != "b:1" {
		t.Errorf("pod.Spec.Containers[2].Image: got %q, want %q\n%+v\n%+v", pod.Spec.Containers[2].Image, "b:1", pod.Spec.Containers,
			b.Writes)
	} else if pod.Labels["changed"] == "" {
		t.Errorf("pod.Labels[\"changed\"]: got nothing, want some text\n%+v\n%+v", pod.Spec.Containers, b.Writes)
	} else if len(b.Writes) != 1 {
		t.Errorf("len(b.Writes): got %d, want 1\n%+v\n%+v", len(b.Writes), pod.Spec.Containers, b.Writes)
	}
	b = newBench(t, given.Pod(done, given.ByImage("a", given.Running(0))), virtual)
	b.Deliver(b.Undelivered())
	b.Remove(podKey)
	reconcileNow()
	if len(b.Writes)+len(b.events) > 0 {
		t.Errorf("len(b.Writes)+len(b.events): got %d, want 0\n%+v\n%q", len(b.Writes)+len(b.events), b.Writes, b.events)
	}
}

// JST-025: a node that is missing is waited for, and then what it is decides.
func TestNodeThatIsMissing(t *testing.T) {
	b := newBench(t, given.Pod(done, given.ByImage("a", given.Running(0))), nil)
	after, err := b.pass()
	if err != nil {
		t.Errorf("unexpected error: %v\n%s\n%+v", err, after, b.Writes)
	} else if after == 0 {
		t.Errorf("after: got %v, want another value\n%v\n%+v", after, err, b.Writes)
	} else if len(b.Writes) > 0 {
		t.Errorf("writes: got %v, want none\n%s\n%v", b.Writes, after, err)
	}
	b.node(map[string]string{pub.NodeType: pub.VirtualNode})
	b.passes(1)
	if len(b.Writes) != 1 {
		t.Errorf("len(b.Writes): got %d, want 1\n%+v", len(b.Writes), b.Writes)
	} else if b.Writes[0].Verb != "patch" {
		t.Errorf("b.Writes[0].Verb: got %q, want %q\n%+v", b.Writes[0].Verb, "patch", b.Writes)
	}
}

// A request of that name which the cache does not show is read: one of an earlier manager is this pod's, one
// of somebody else is passed over, and told of once.
func TestRequestThatIsThereAlready(t *testing.T) {
	for name, ours := range map[string]bool{"of an earlier manager": true, "of somebody else": false} {
		r := given.Request("sidecar-termination-u", "a")
		if !ours {
			r.OwnerReferences = nil
		}
		b := newBench(t, given.Pod(done, given.Sidecar("a", given.Running(0))), map[string]string{}, r)
		b.Answer = admitted(b)
		b.Deliver(b.Undelivered())
		b.Hide(b.KeyOf("ContainerRecreateRequest", r))
		for range 4 {
			b.Pass(time.Second)
			if _, err := b.loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: podName}); err != nil {
				t.Fatal(err)
			}
		}
		if ours && (len(b.Writes) > 0 || len(b.events) > 0) {
			t.Errorf("%s: %+v, %q", name, b.Writes, b.events)
		}
		if !ours && (len(b.Writes) != 1 || b.Writes[0].Key.Name != "sidecar-termination-u-2" || len(b.events) != 2 ||
			!strings.Contains(b.events[0], "Warning SidecarRequestNotOurs")) {
			t.Errorf("%s: %+v, %q", name, b.Writes, b.events)
		}
	}
}

// What is refused is told once for each reason, counted, and tried again within a minute.
func TestRefusedWritesAreToldOnceAndTriedAgain(t *testing.T) {
	b := newBench(t, given.Pod(done, given.Sidecar("a", given.Running(0))), map[string]string{})
	why := "exceeded quota"
	b.Answer = func(r *simulation.Request) error {
		if r.Verb != "create" {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: "containerrecreaterequests"}, r.Key.Name, errors.New(why))
	}
	for range 3 {
		if _, err := b.pass(); err == nil {
			t.Error("no error")
		}
	}
	why = "another quota"
	_, _ = b.pass()
	if len(b.events) != 2 {
		t.Errorf("len(b.events): got %d, want 2\n%q", len(b.events), b.events)
	} else if !strings.Contains(b.events[0], "Warning SidecarTerminatorFailed") {
		t.Errorf("b.events[0]: got %q, want it to contain %q\n%q", b.events[0], "Warning SidecarTerminatorFailed", b.events)
	} else if !strings.Contains(b.events[0], "exceeded quota") {
		t.Errorf("b.events[0]: got %q, want it to contain %q\n%q", b.events[0], "exceeded quota", b.events)
	} else if !strings.Contains(b.events[1], "another quota") {
		t.Errorf("b.events[1]: got %q, want it to contain %q\n%q", b.events[1], "another quota", b.events)
	} else if got := b.counted(sidecarterminator.ByRequest, "Refused"); got != 4 {
		t.Errorf("b.counted(sidecarterminator.ByRequest, \"Refused\"): got %v, want 4\n%q", got, b.events)
	}
	if wait := b.loop.BackOff().When(ctrl.Request{NamespacedName: podName}); wait > mendedAfter {
		t.Errorf("b.loop.BackOff().When(ctrl.Request{NamespacedName: podName}): got %v, want at most %v", wait, mendedAfter)
	}
	b.Answer = admitted(b)
	b.passes(1)
	if len(b.Writes) != 1 {
		t.Errorf("len(b.Writes): got %d, want 1\n%+v", len(b.Writes), b.Writes)
	}
}

// JST-021: creations and updates of pods count as soon as something is to be done, and the end of that, so
// that nothing is remembered.
func TestPodsCountAsSoonAsSomethingIsToBeDone(t *testing.T) {
	idle, due, finished := given.Pod(given.With("main", given.Running(0)), given.Sidecar("a", given.Running(0))),
		given.Pod(done, given.Sidecar("a", given.Running(0))), given.Pod(done, given.Sidecar("a", given.Ended(0)))
	plain := given.Pod(done, given.With("a", given.Running(0)))
	for name, got := range map[string]bool{
		"created, due": podEvents.Create(event.CreateEvent{Object: due}), "updated, due": podEvents.Update(event.UpdateEvent{ObjectOld: idle, ObjectNew: due}),
		"still due": podEvents.Update(event.UpdateEvent{ObjectOld: due, ObjectNew: due}),
		"finished":  podEvents.Update(event.UpdateEvent{ObjectOld: due, ObjectNew: finished}), "deleted": podEvents.Delete(event.DeleteEvent{Object: finished}),
		"not: created, idle": podEvents.Create(event.CreateEvent{Object: idle}), "not: updated, idle": podEvents.Update(event.UpdateEvent{ObjectOld: idle, ObjectNew: idle}),
		"not: without sidecars": podEvents.Create(event.CreateEvent{Object: plain}), "not: deleted without": podEvents.Delete(event.DeleteEvent{Object: plain}),
	} {
		if got == strings.HasPrefix(name, "not") {
			t.Errorf("%s: got %t, want another value", name, got)
		}
	}
	b := newBench(t, due, map[string]string{})
	b.Answer = admitted(b)
	b.passes(1)
	b.Change(podKey, func(o client.Object) {
		pod, _ := o.(*corev1.Pod)
		pod.Status = finished.Status
	})
	b.passes(2)
	if kept := b.c.Kept("u"); kept != nil && *kept != nil {
		t.Errorf("ended: got %v, want nil", *kept)
	}
	if again := b.r.Own.Again("u"); again != 0 {
		t.Errorf(`b.r.Own.Again("u"): got %v, want 0`, again)
	}
}

// JST-051: sidecars are counted by way and result. The end of a request is counted for each of its sidecars,
// once, and calls a pass for the pod.
func TestEndsOfRequests(t *testing.T) {
	b := newBench(t, given.Pod(done, given.Sidecar("a", given.Running(0))), map[string]string{})
	open := given.Request("sidecar-termination-u", "a", "b")
	ended := given.Completed(open.DeepCopy(), "")
	ended.Status.ContainerRecreateStates = []appsv1beta1.ContainerRecreateRequestContainerRecreateState{
		{Name: "a", Phase: appsv1beta1.ContainerRecreateRequestSucceeded}, {Name: "b", Phase: appsv1beta1.ContainerRecreateRequestFailed}}
	silent, foreign := given.Completed(open.DeepCopy(), restart.MessageNoAnswer), ended.DeepCopy()
	foreign.OwnerReferences = nil
	called := 0
	q := calls{add: func() { called++ }}
	for _, e := range []event.UpdateEvent{{ObjectOld: open, ObjectNew: ended}, {ObjectOld: ended, ObjectNew: ended}, {ObjectOld: open, ObjectNew: open},
		{ObjectOld: open, ObjectNew: foreign}, {ObjectOld: open, ObjectNew: silent}} {
		b.r.changed(t.Context(), e, q)
	}
	for result, want := range map[string]float64{"Succeeded": 1, "Failed": 1, "NoAnswer": 2, "DeadlineExceeded": 0} {
		if got := b.counted(sidecarterminator.ByRequest, result); got != want {
			t.Errorf("%s: b.counted(sidecarterminator.ByRequest, result): got %v, want %v", result, got, want)
		}
	}
	b.r.deleted(t.Context(), event.DeleteEvent{Object: open}, q)
	b.r.deleted(t.Context(), event.DeleteEvent{Object: foreign}, q)
	if called != 3 {
		t.Errorf("called: got %d, want 3", called)
	}
	image := newBench(t, given.Pod(done, given.ByImage("a", given.Running(0))), map[string]string{pub.NodeType: pub.VirtualNode})
	image.passes(1)
	phase := newBench(t, given.Pod(done, given.Ignored("a", given.Running(0)), given.Ignored("b", given.Running(0))), map[string]string{})
	phase.passes(1)
	images, phases := image.counted(sidecarterminator.ByImage, "Replaced"), phase.counted(sidecarterminator.ByPhase, "Set")
	if images != 1 {
		t.Errorf("images: got %v, want 1", images)
	}
	if phases != 2 {
		t.Errorf("phases: got %v, want 2", phases)
	}
}

// A manager that dies between the phase and what comes after it is followed by one that goes on
// (JST-033 (part), JST-040 (part)).
func TestDeathAfterThePhase(t *testing.T) {
	b := newBench(t, given.Pod(done, given.Ignored("a", given.Running(0))), map[string]string{})
	b.Answer = admitted(b)
	b.passes(1)
	b.r = &Reconciler{API: b.API(), Events: b}
	b.start()
	b.passes(2)
	if len(b.Writes) != 2 {
		t.Errorf("len(b.Writes): got %d, want 2\n%+v", len(b.Writes), b.Writes)
	} else if b.Writes[0].Subresource != "status" {
		t.Errorf("b.Writes[0].Subresource: got %q, want %q\n%+v", b.Writes[0].Subresource, "status", b.Writes)
	} else if b.Writes[1].Key.Name != "sidecar-termination-u-ignore" {
		t.Errorf("b.Writes[1].Key.Name: got %q, want %q\n%+v", b.Writes[1].Key.Name, "sidecar-termination-u-ignore", b.Writes)
	}
}

// JST-002, JST-015 (part): the caches keep enough of a pod of any owner, a BroadcastJob and a SidecarSet
// included, and all of them are treated alike.
func TestDecisionsNeedNoMoreThanTheCaches(t *testing.T) {
	yes := true
	owners := map[string]func(*corev1.Pod){"nobody": func(*corev1.Pod) {},
		"a SidecarSet": func(p *corev1.Pod) { p.Annotations = map[string]string{pub.SidecarSetInjectedList: "s"} }}
	for version, kind := range map[string]string{"batch/v1": "Job", "apps.kruise.io/v1beta1": "BroadcastJob", "example.com/v1": "Any"} {
		owners[kind] = func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "o", UID: "o", Controller: &yes}}
		}
	}
	pods := map[string][]given.Option{
		"by request":   {done, given.Sidecar("s", given.Running(0)), given.ByImage("i", given.Running(0))},
		"by phase":     {done, given.Ignored("s", given.Running(0)), given.Sidecar("e", given.Ended(143))},
		"ahead":        {done, given.Ignored("s", given.Running(0)), given.Phase(corev1.PodFailed, given.Noon.Add(-time.Hour))},
		"not done":     {given.With("main", given.Running(0)), given.Sidecar("s", given.Running(0))},
		"started anew": {given.Policy(corev1.RestartPolicyOnFailure), given.With("main", given.Ended(1)), given.Sidecar("s", given.Running(0))},
	}
	for name, options := range pods {
		for owner, own := range owners {
			for _, node := range []sidecarterminator.Node{sidecarterminator.Normal, sidecarterminator.Virtual} {
				plan := func(pod *corev1.Pod) string {
					p := sidecarterminator.NewPlan(sidecarterminator.Snapshot{Pod: pod, Node: node, Now: given.Noon})
					request := ""
					if p.Request != nil {
						request = fmt.Sprintf("%+v, %d", p.Request.Spec.Containers, *p.Request.Spec.ActiveDeadlineSeconds)
					}
					return fmt.Sprint(p, p.Images, p.Status, request)
				}
				whole := given.Pod(options...)
				own(whole)
				kept, err := slim.Pod(whole.DeepCopy())
				if err != nil {
					t.Fatal(err)
				}
				thin, _ := kept.(*corev1.Pod)
				if got, want := plan(thin), plan(given.Pod(options...)); got != want {
					t.Errorf("%s, of %s: %s, want %s", name, owner, got, want)
				}
			}
		}
	}
}

// Nothing is remembered of pods without sidecars, whatever requests of our names are made for them: no event
// tells of their end.
func TestPodsWithoutSidecarsAreNotRemembered(t *testing.T) {
	b := newBench(t, given.Pod(done, given.With("a", given.Running(0))), map[string]string{})
	var called []ctrl.Request
	q := calls{add: func() { called = append(called, ctrl.Request{NamespacedName: podName}) }}
	b.r.deleted(t.Context(), event.DeleteEvent{Object: given.Request("sidecar-termination-u", "a")}, q)
	if len(called) != 1 {
		t.Fatalf("len(called): got %d, want 1\n%v", len(called), called)
	}
	b.passes(1)
	if uid, err := b.loop.Owner(t.Context(), podName); uid != "" || err != nil { // the loop remembers what has an owner
		t.Errorf("the loop remembers %q: %v", uid, err)
	}
}
