package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/podfeatures/launchpriority"
	"github.com/afloat-project/afloat/internal/podfeatures/launchpriority/launchprioritytest"
	own "github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// world is a pod with a kubelet that starts what it may, a cache that lags, and writes that fail before or
// after they happened.
type world struct {
	t       *testing.T
	random  *rand.Rand
	server  client.WithWatch
	pod     *corev1.Pod // as the cache shows it
	barrier *metav1.PartialObjectMetadata
	r       *Reconciler
	now     time.Time
	faults  bool
	writes  int
	uids    int
	begun   map[string]bool // containers that have started once
}

var errLost = errors.New("the answer is lost")

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0), faults: true}
	// The builder's own tracker notes who owns which field, which is most of the work and of no use here.
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
	w.server = fake.NewClientBuilder().WithObjectTracker(tracker).WithStatusSubresource(&corev1.Pod{}).Build()
	w.restart()
	w.replace()
	return w
}

// restart is a manager that remembers nothing.
func (w *world) restart() {
	write := func(do func() error) error {
		if w.faults && w.random.IntN(5) == 0 {
			return errLost
		}
		err := do()
		if err == nil {
			w.writes++
		}
		if err == nil && w.faults && w.random.IntN(5) == 0 {
			return errLost
		}
		return err
	}
	cached := interceptor.NewClient(w.server, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			switch o := object.(type) {
			case *corev1.Pod:
				if w.pod != nil {
					w.pod.DeepCopyInto(o)
					return nil
				}
			case *metav1.PartialObjectMetadata:
				if w.barrier != nil {
					w.barrier.DeepCopyInto(o)
					return nil
				}
			}
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			o.SetUID(types.UID(fmt.Sprintf("m-%d", w.random.Uint32())))
			return write(func() error { return c.Create(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			return write(func() error {
				if err := w.sameUID(o, p); err != nil {
					return err
				}
				return c.Patch(ctx, o, p, options...)
			})
		},
	})
	w.r = &Reconciler{API: own.NewAPI(cached, w.server, slim.Any, func() time.Time { return w.now }),
		Events: own.NewRecorder(events.NewFakeRecorder(1000))}
}

// sameUID refuses, as a real server does and the fake one does not, a patch that names the UID of an earlier
// object of that name.
func (w *world) sameUID(object client.Object, patch client.Patch) error {
	if patch.Type() == types.JSONPatchType {
		return nil
	}
	data, err := patch.Data(object)
	w.check(err)
	body, live := &metav1.PartialObjectMetadata{}, client.Object(&corev1.ConfigMap{})
	w.check(json.Unmarshal(data, body))
	if object.GetObjectKind().GroupVersionKind().Kind == "Pod" {
		live = &corev1.Pod{}
	}
	if err := w.server.Get(w.t.Context(), client.ObjectKeyFromObject(object), live); err != nil {
		return err
	}
	if body.UID != "" && body.UID != live.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), fmt.Errorf("UID %s is now %s", body.UID, live.GetUID()))
	}
	return nil
}

func (w *world) check(err error) {
	w.t.Helper()
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
}

func (w *world) livePod() *corev1.Pod {
	pod := &corev1.Pod{}
	w.check(w.server.Get(w.t.Context(), request.NamespacedName, pod))
	return pod
}

func (w *world) liveBarrier() *corev1.ConfigMap {
	m := &corev1.ConfigMap{}
	if err := w.server.Get(w.t.Context(), types.NamespacedName{Namespace: "ns", Name: "p-barrier"}, m); err != nil {
		w.check(err)
		return nil
	}
	return m
}

// replace is another pod of the same name. The ConfigMap of the former one stays for now.
func (w *world) replace() {
	if w.uids > 0 {
		w.delete(w.livePod())
	}
	w.uids++
	w.begun = map[string]bool{}
	priorities := make([]int, 2+w.random.IntN(3))
	for i := range priorities {
		priorities[i] = w.random.IntN(3) - 1
	}
	w.check(w.server.Create(w.t.Context(), launchprioritytest.Pod(priorities,
		func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprintf("u-%d", w.uids)) })))
}

// kubelet moves one container on, if it may, and holds the order to what is promised (ND-122 (part),
// ND-137 (part)).
func (w *world) kubelet(i int, crashes bool) {
	pod, barrier := w.livePod(), w.liveBarrier()
	i %= len(pod.Spec.Containers)
	status, key := &pod.Status.ContainerStatuses[i], pod.Spec.Containers[i].Env[0].ValueFrom.ConfigMapKeyRef.Key
	switch {
	case status.Ready && crashes && w.random.IntN(3) == 0:
		*status = corev1.ContainerStatus{Name: status.Name, RestartCount: status.RestartCount + 1,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	case status.State.Running != nil:
		status.Ready = true
	case status.State.Waiting != nil:
		// Kubelet sees a pod after the manager had time to look at what is left of a former one
		// (ND-139 (part)).
		if barrier == nil || barrier.Data[key] != "true" || barrier.OwnerReferences[0].UID != pod.UID {
			return
		}
		status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		priority, _ := pub.LaunchBarrierPriority(key)
		for j := range pod.Spec.Containers {
			other := &pod.Spec.Containers[j]
			if above, _ := pub.LaunchBarrierPriority(other.Env[0].ValueFrom.ConfigMapKeyRef.Key); above > priority &&
				!w.begun[other.Name] && !w.begun[status.Name] {
				w.t.Fatalf("%s (%d) starts before %s (%d)", status.Name, priority, other.Name, above)
			}
		}
	}
	ready := corev1.ConditionTrue
	for j := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[j]; s.Ready {
			w.begun[s.Name] = true
		} else {
			ready = corev1.ConditionFalse
		}
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: ready}}
	w.check(w.server.Status().Update(w.t.Context(), pod))
}

func (w *world) seePod() { w.pod = w.livePod() }

func (w *world) seeBarrier() {
	w.barrier = nil
	if live := w.liveBarrier(); live != nil && live.Labels[pub.LaunchBarrier] == "true" {
		w.barrier = metadataOf("ConfigMap")
		w.barrier.ObjectMeta = live.ObjectMeta
	}
}

// collect deletes a ConfigMap whose pod has gone, as the cluster does in its own time; lose deletes any.
func (w *world) collect(lose bool) {
	if m := w.liveBarrier(); m != nil && (lose || m.OwnerReferences[0].UID != w.livePod().UID) {
		w.delete(m)
	}
}

// delete ends an object. Versions of this server, unlike those of a real one, start anew with the next object
// of that name, so that none may be remembered.
func (w *world) delete(object client.Object) {
	w.check(w.server.Delete(w.t.Context(), object))
	w.r.Own = &own.OwnWrites{Cache: w.r.Client, Live: w.r.Live}
}

func (w *world) reconcile() {
	w.now = w.now.Add(time.Second)
	if _, err := w.r.Reconcile(w.t.Context(), request); err != nil && !errors.Is(err, errLost) {
		w.t.Fatalf("err: got %v, want %v", err, errLost)
	}
}

// TestSimulatedLaunches: under any interleaving containers start in order, all of them in the end, and then
// nothing is written (ND-137 to ND-139, ND-142 (part)).
func TestSimulatedLaunches(t *testing.T) {
	ctrl.SetLogger(klog.NewKlogr())
	simulationtest.Some(t, 10, 10, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		for range 60 {
			switch n := w.random.IntN(40); {
			case n < 12:
				w.reconcile()
			case n < 20:
				w.kubelet(w.random.IntN(12), true)
			case n < 28:
				w.seePod()
			case n < 35:
				w.seeBarrier()
			case n == 35:
				w.collect(true)
			case n == 36:
				w.restart()
			case n == 37:
				w.replace()
			default:
				w.collect(false)
			}
		}
		w.faults = false
		settled := func() bool {
			for i := range 40 {
				w.collect(false)
				w.seePod()
				w.seeBarrier()
				w.reconcile()
				w.kubelet(i, false)
			}
			return !launchpriority.Concerns(w.livePod())
		}
		if !settled() {
			t.Fatalf("not all start: %+v, %+v", w.livePod().Status, w.liveBarrier())
		}
		before := w.writes
		if !settled() {
			t.Errorf("settled(): got false, want true; %d writes at rest", w.writes-before)
		}
		if w.writes != before {
			t.Errorf("writes: got %d, want %d; %d writes at rest", w.writes, before, w.writes-before)
		}
	})
}
