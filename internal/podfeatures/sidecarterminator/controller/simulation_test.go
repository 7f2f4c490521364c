package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/podfeatures/sidecarterminator"
	given "github.com/afloat-project/afloat/internal/podfeatures/sidecarterminator/sidecarterminatortest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var (
	podKey  = simulation.Key{Kind: "Pod", Name: "p"}
	podName = types.NamespacedName{Namespace: "ns", Name: "p"}
)

// process is a container as it is on the node; kubelet reports of it later.
type process struct {
	running        bool
	restarts, code int32
	stubborn       int // so often it ends with 143 when it is stopped, then with 0
}

// world is a pod on a node with a kubelet and perhaps a daemon, and a manager whose caches lag, whose
// requests fail, and which dies.
type world struct {
	t *testing.T
	*simulation.Play
	loop    *reconcile.Loop
	r       *Reconciler
	uid     types.UID // of the pod that is on the node
	pods    int
	node    map[string]*process
	daemon  bool // it answers
	kubelet bool // it stops what runs in finished pods
	foreign int
	told    map[string]int
}

// calls is a queue of the library that calls the simulated one.
type calls struct {
	queue
	add func()
}

// Add implements the queue.
func (c calls) Add(ctrl.Request) { c.add() }

func newWorld(t *testing.T, seed uint64) *world {
	c := simulation.New(seed)
	w := &world{t: t, Play: &simulation.Play{Cluster: c}, told: map[string]int{}}
	c.Slim, c.Apart = slim.Any, c.Rand.IntN(2) == 0
	w.daemon, w.kubelet = c.Rand.IntN(4) > 0, c.Rand.IntN(5) > 0
	if err := c.IndexField(t.Context(), &appsv1beta1.ContainerRecreateRequest{}, ofPod, index); err != nil {
		t.Fatal(err)
	}
	c.Answer, c.BeforeWrite, c.Delivered = w.admit, w.holds, w.delivered
	labels := map[string]string{}
	if c.Rand.IntN(5) == 0 {
		labels[pub.NodeType] = pub.VirtualNode
		w.daemon = false
	}
	c.Store(simulation.Key{Kind: "Node", Name: "n"}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}})
	w.replace()
	w.start()
	w.Reconcile = func() (time.Duration, error) {
		result, err := w.loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: podName})
		return result.RequeueAfter, err
	}
	w.EnvironmentStep = w.environmentStep
	w.Start = w.start
	w.Describe = func() string { return fmt.Sprintf("%+v, node %+v", w.pod().Status, w.node) }
	return w
}

// start is a manager that remembers nothing.
func (w *world) start() {
	w.Restart()
	w.r = &Reconciler{API: w.API(), Events: w}
	w.loop = w.r.controller().Loop(nil)
	w.Queue = simulation.NewQueue(w.Cluster, "p")
}

// Event implements reconcile.Recorder.
func (w *world) Event(_ client.Object, _, reason, _ string) { w.told[reason]++ }

func (w *world) delivered(before, after client.Object) {
	q := calls{add: w.Queue.Add}
	var called bool
	switch {
	case after == nil:
		called = podEvents.Delete(event.DeleteEvent{Object: before})
		w.r.deleted(context.Background(), event.DeleteEvent{Object: before}, q)
	case before == nil || before.GetUID() != after.GetUID():
		called = podEvents.Create(event.CreateEvent{Object: after})
	default:
		called = podEvents.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
		w.r.changed(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	}
	if called {
		w.Queue.Add()
	}
}

// pod is the pod in the API server, nil if it is gone.
func (w *world) pod() *corev1.Pod {
	pod, _ := w.Get(podKey).(*corev1.Pod)
	return pod
}

// replace puts another pod of the same name on the node.
func (w *world) replace() {
	w.Remove(podKey)
	w.pods++
	w.uid = types.UID(fmt.Sprintf("%036d", w.pods))
	w.node = map[string]*process{}
	policy := []corev1.RestartPolicy{corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure}[w.Rand.IntN(2)]
	options := []given.Option{given.Policy(policy), func(p *corev1.Pod) { p.UID = w.uid }}
	for i := range 1 + w.Rand.IntN(2) {
		options = append(options, given.With(fmt.Sprint("main", i), given.Waiting))
	}
	sorts := []func(string, given.State) given.Option{given.Sidecar, given.Ignored, given.ByImage}
	for i := range w.Rand.IntN(4) {
		options = append(options, sorts[w.Rand.IntN(3)](fmt.Sprint("s", i), given.Waiting))
	}
	pod := given.Pod(options...)
	pod.Status.Phase, pod.CreationTimestamp = corev1.PodPending, metav1.NewTime(w.Now())
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if len(c.Env) > 0 && w.onVirtual() { // else nothing can stop it there
			c.Env = append(c.Env, corev1.EnvVar{Name: pub.TerminateSidecarImageEnv, Value: "exit:1"})
		}
		w.node[c.Name] = &process{stubborn: w.Rand.IntN(3) * w.Rand.IntN(2)}
	}
	w.Store(podKey, pod)
}

func (w *world) onVirtual() bool {
	return w.Get(simulation.Key{Kind: "Node", Name: "n"}).GetLabels()[pub.NodeType] != ""
}

func main(name string) bool { return strings.HasPrefix(name, "main") }

// over tells whether the container of the pod has ended for good, on the node.
func (w *world) over(pod *corev1.Pod, name string) bool {
	p := w.node[name]
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return p.code >= 0 && !p.running && p.restarts >= 0 && p.begun() && !restart.StartsAgain(pod, c, p.code)
		}
	}
	return false
}

// begun tells whether the process ran; one that did not has no code yet.
func (p *process) begun() bool { return p.restarts > 0 || p.running || p.code != 0 || p.stubborn < 0 }

// holds are the invariants, at each write of the manager (JST-022, JST-030, JST-033, JST-040 (part)).
func (w *world) holds(write simulation.Write, _, after client.Object) {
	pod := w.pod()
	if request, ok := after.(*appsv1beta1.ContainerRecreateRequest); ok {
		for _, other := range w.List("ContainerRecreateRequest", false) {
			if r, ok := other.(*appsv1beta1.ContainerRecreateRequest); ok && sidecarterminator.PodUID(r.Name) == w.uid &&
				sidecarterminator.OwnerOf(r) == "p" && !sidecarterminator.Over(r) {
				w.t.Errorf("%s comes while %s is under way", request.Name, r.Name)
			}
		}
		for _, c := range request.Spec.Containers {
			if main(c.Name) {
				w.t.Errorf("main container %s is stopped", c.Name)
			}
		}
	}
	for i := range pod.Spec.Containers {
		name := pod.Spec.Containers[i].Name
		if main(name) && !w.over(pod, name) {
			w.t.Errorf("%+v while %s is %+v", write, name, w.node[name])
		}
		ignored := false
		for _, env := range pod.Spec.Containers[i].Env {
			ignored = ignored || env.Name == pub.TerminateSidecarIgnoreExitEnv
		}
		if write.Subresource == "status" && !main(name) && !ignored && len(pod.Spec.Containers[i].Env) > 0 && !w.over(pod, name) {
			w.t.Errorf("the phase is set while %s is %+v", name, w.node[name])
		}
	}
}

// admit is the admission of requests (CRR-028, CRR-033), with what is filled in after it.
func (w *world) admit(r *simulation.Request) error {
	request, ok := r.Object.(*appsv1beta1.ContainerRecreateRequest)
	if !ok || r.Verb != "create" {
		return nil
	}
	pod := w.pod()
	if pod == nil {
		return apierrors.NewBadRequest("no such pod")
	}
	if refusal := containerrecreate.CheckPod(pod); refusal != nil {
		return apierrors.NewBadRequest(refusal.Message)
	}
	if _, _, refusal := containerrecreate.Accept(request, false, pod); refusal != nil {
		return apierrors.NewBadRequest(refusal.Message)
	}
	labelled := request.DeepCopy()
	labelled.Labels = map[string]string{pub.RecreateActive: "true", pub.RecreatePodUID: string(pod.UID)}
	filled, _, refusal := containerrecreate.Fill(labelled, pod, nil)
	if refusal != nil {
		return apierrors.NewBadRequest(refusal.Message)
	}
	r.Object = filled
	return nil
}

// ends ends a process that is stopped.
func (p *process) ends() {
	if !p.running {
		return
	}
	p.running, p.code = false, 0
	if p.stubborn > 0 {
		p.stubborn, p.code = p.stubborn-1, 143
	}
	if p.stubborn == 0 && p.code == 0 {
		p.stubborn = -1
	}
}

// environmentStep lets kubelet, the daemon and the controller of requests act once.
func (w *world) environmentStep() bool {
	moved := false
	for _, act := range []func() bool{w.runs, w.reports, w.serves, w.expires} {
		moved = act() || moved
	}
	return moved
}

// runs lets the processes of the node start, end and start again.
func (w *world) runs() bool {
	pod, moved := w.pod(), false
	if pod == nil {
		return false
	}
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		p := w.node[c.Name]
		switch {
		case finished && !p.begun(): // kubelet reports so of what never ran
			p.code = 137
		case finished && (!p.running || !w.kubelet):
			continue
		case finished:
			p.ends()
		case !p.begun():
			p.running = true
		case !p.running && restart.StartsAgain(pod, c, p.code):
			p.running, p.restarts = true, p.restarts+1
		case p.running && main(c.Name):
			p.ends()
		case p.running && c.Image == "exit:1" && w.Rand.IntN(2) == 0:
			p.running, p.code, p.restarts, p.stubborn = false, 0, p.restarts+1, -1
		default:
			continue
		}
		moved = true
		if w.Rand.IntN(2) == 0 {
			break
		}
	}
	return moved
}

// reports brings the status of the pod up to what is on the node. A final phase stays (JST-041 (part)).
func (w *world) reports() bool {
	before := w.pod()
	if before == nil {
		return false
	}
	pod, all, worst := before.DeepCopy(), true, int32(0)
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		p := w.node[s.Name]
		s.RestartCount = p.restarts
		switch {
		case p.running:
			given.Running(p.restarts)(s)
		case p.begun():
			given.Ended(p.code)(s)
		}
		all = all && w.over(pod, s.Name)
		worst = max(worst, p.code)
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
	case !all:
		pod.Status.Phase = corev1.PodRunning
	case worst == 0:
		pod.Status.Phase = corev1.PodSucceeded
	default:
		pod.Status.Phase = corev1.PodFailed
	}
	if fmt.Sprint(before.Status) == fmt.Sprint(pod.Status) {
		return false
	}
	w.Store(podKey, pod)
	return true
}

// requests are those that are under way, and were made for the pod.
func (w *world) requests() (open []*appsv1beta1.ContainerRecreateRequest) {
	for _, object := range w.List("ContainerRecreateRequest", false) {
		if r, ok := object.(*appsv1beta1.ContainerRecreateRequest); ok && !restart.Completed(r) && restart.PodUID(r) != "" {
			open = append(open, r)
		}
	}
	return open
}

func (w *world) complete(r *appsv1beta1.ContainerRecreateRequest, message string, phase appsv1beta1.ContainerRecreateRequestPhase) {
	w.Change(w.KeyOf("ContainerRecreateRequest", r), func(o client.Object) {
		r := o.(*appsv1beta1.ContainerRecreateRequest)
		done := metav1.NewTime(w.Now())
		r.Status = appsv1beta1.ContainerRecreateRequestStatus{Phase: appsv1beta1.ContainerRecreateRequestCompleted, CompletionTime: &done, Message: message}
		for _, c := range r.Spec.Containers {
			r.Status.ContainerRecreateStates = append(r.Status.ContainerRecreateStates,
				appsv1beta1.ContainerRecreateRequestContainerRecreateState{Name: c.Name, Phase: phase})
		}
	})
}

// serves is the daemon of the node, which at times fails.
func (w *world) serves() bool {
	moved := false
	for _, r := range w.requests() {
		if !w.daemon || restart.PodUID(r) != w.uid {
			continue
		}
		moved = true
		phase := appsv1beta1.ContainerRecreateRequestSucceeded
		if w.Faults.Refuse > 0 && w.Rand.IntN(4) == 0 {
			phase = appsv1beta1.ContainerRecreateRequestFailed
		} else {
			for _, c := range r.Spec.Containers {
				w.node[c.Name].ends()
			}
		}
		w.complete(r, "", phase)
	}
	return moved
}

// expires is the controller of requests (CRR-058 to CRR-060).
func (w *world) expires() bool {
	moved := false
	for _, r := range w.requests() {
		if pod := w.pod(); pod == nil || pod.UID != restart.PodUID(r) {
			w.complete(r, restart.MessagePodGone, appsv1beta1.ContainerRecreateRequestFailed)
			moved = true
		} else if w.Now().Sub(r.CreationTimestamp.Time) >= time.Minute {
			w.complete(r, restart.MessageNoAnswer, appsv1beta1.ContainerRecreateRequestFailed)
			moved = true
		}
	}
	for _, object := range w.List("ContainerRecreateRequest", false) {
		r, ok := object.(*appsv1beta1.ContainerRecreateRequest)
		if ttl := r.Spec.TTLSecondsAfterFinished; ok && ttl != nil && restart.Completed(r) &&
			w.Now().Sub(r.Status.CompletionTime.Time) >= time.Duration(*ttl)*time.Second {
			w.Remove(w.KeyOf("ContainerRecreateRequest", r))
			moved = true
		}
	}
	return moved
}

// user deletes a request, or makes one of our next name that is for nobody.
func (w *world) user() {
	if all := w.List("ContainerRecreateRequest", false); len(all) > 0 && w.Rand.IntN(2) == 0 {
		w.Remove(w.KeyOf("ContainerRecreateRequest", all[w.Rand.IntN(len(all))]))
		return
	}
	name := "sidecar-termination-" + string(w.uid) + []string{"", "-2", "-ignore", "-3"}[w.Rand.IntN(4)]
	key := simulation.Key{Kind: "ContainerRecreateRequest", Name: name}
	if w.Get(key) != nil {
		return
	}
	w.foreign++
	w.Store(key, &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "q"}})
}

// TestSimulatedTerminations: whatever fails, lags or dies in between, nothing is done while a main container
// is not done, no two requests of a pod are under way, no phase is set before sidecars whose code counts have
// ended, each pod ends, and nothing is written at rest (JST-001, JST-022, JST-030, JST-034 (part)).
func TestSimulatedTerminations(t *testing.T) {
	simulationtest.Seeds(t, 30, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		w.Faults = simulation.Faults{Refuse: 0.1, Lose: 0.1, Die: 0.03}
		for range 120 {
			switch n := w.Rand.IntN(40); {
			case w.Dead():
				w.start()
			case n < 12:
				w.Manage()
			case n < 20:
				w.Events(1 + w.Rand.IntN(3))
			case n < 25:
				w.runs()
			case n < 30:
				w.reports()
			case n < 33:
				w.serves()
			case n < 35:
				w.Pass(time.Duration(1+w.Rand.IntN(30)) * time.Second)
				w.expires()
			case n == 35:
				w.user()
			case n == 36:
				w.Kill()
			case n == 37 && w.Rand.IntN(3) == 0:
				w.replace()
			}
		}
		w.settle()
		pod := w.pod()
		for name, p := range w.node {
			if p.running {
				t.Errorf("running: got true, want false; %s is left: %+v, %+v, %v", name, p, pod.Status, pod.Spec.Containers)
			}
			if !p.begun() {
				t.Errorf("p.begun(): got false, want true; %s is left: %+v, %+v, %v", name, p, pod.Status, pod.Spec.Containers)
			}
		}
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			t.Errorf("phase %s", pod.Status.Phase)
		}
		writes := len(w.Writes)
		if w.told[sidecarterminator.Done] > writes { // JST-050
			t.Errorf("%d events of %d writes", w.told[sidecarterminator.Done], writes)
		}
		w.Queue.Add()
		w.settle()
		w.Pass(time.Hour)
		w.start()
		w.settle()
		if len(w.Writes) != writes {
			t.Errorf("written at rest: %+v", w.Writes[writes:])
		}
	})
}

// settle lets everybody act until the pod has ended and nothing is due.
func (w *world) settle() {
	w.t.Helper()
	w.Faults = simulation.Faults{}
	if w.Dead() {
		w.start()
	}
	// A sidecar that only a request can stop needs a daemon in the end; one that names an image does not.
	started := w.Now()
	for range 3000 {
		if w.Round() {
			continue
		}
		if !w.daemon && !w.onVirtual() && w.Now().Sub(started) > 10*time.Minute {
			w.daemon = true
		}
		if pod := w.pod(); len(w.requests()) == 0 && w.Queue.Due().IsZero() && (pod == nil || !sidecarterminator.Concerns(pod)) {
			return
		}
		if due := w.Queue.Due(); !due.IsZero() && due.Sub(w.Now()) < 10*time.Second {
			w.Queue.Wait()
		} else {
			w.Pass(10 * time.Second)
		}
	}
	w.t.Fatalf("no rest: %s, %+v", w.Describe(), w.requests())
}
