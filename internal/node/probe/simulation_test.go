package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// box is a container of the world: what it answers now, and whether the runtime runs it.
type box struct {
	id      int
	running bool
	started time.Time
	answers bool
	word    string
}

// podCache has pods by name.
type podCache map[string]*corev1.Pod

// Get implements client.Reader.
func (c podCache) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	pod := c[key.Name]
	if pod == nil {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	pod.DeepCopyInto(into.(*corev1.Pod))
	return nil
}

// List implements client.Reader.
func (c podCache) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.ErrUnsupported
}

// world is a node with some pods, of one container each, an API server and a daemon that may die.
type world struct {
	t      *testing.T
	rand   *rand.Rand
	clock  *clocktesting.FakeClock
	client client.Client
	daemon *reconciler
	boxes  map[types.UID]*box
	pods   podCache
	ids    int
	writes int
	// refuses: requests to the API server fail; silent: the runtime does not answer.
	refuses, silent bool
	// again is when Reconcile asked to be called again; events are sooner.
	again    time.Time
	attempts int
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), clock: clocktesting.NewFakeClock(noon), boxes: map[types.UID]*box{}, pods: podCache{}} //nolint:gosec // a simulation
	scheme := k8sruntime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	o := object()
	o.Spec.PodProbes = nil
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(o).WithObjects(o).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if w.refuses {
				return apierrors.NewInternalError(errors.New("refused by the simulation"))
			}
			w.writes++
			if err := c.SubResource(sub).Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			if w.chance(0.02) && w.refuses {
				return apierrors.NewInternalError(errors.New("the answer is lost"))
			}
			return nil
		}}).Build()
	w.start()
	return w
}

func (w *world) chance(p float64) bool { return w.rand.Float64() < p }

// start starts a daemon; a former one is dead.
func (w *world) start() {
	w.again = time.Time{}
	w.daemon = newReconciler("n", w.client, record.NewFakeRecorder(1<<16), w.clock)
	w.daemon.containers = newContainers(w, w.pods, true, w.clock.Now)
	w.daemon.attempts = func(_ context.Context, d *Definition, container string) Attempt {
		w.attempts++
		b := w.boxes[d.Pod]
		switch {
		case w.silent:
			return Attempt{None, "the runtime does not answer"}
		case container != w.id(b) || !b.running:
			return Attempt{None, "no such container"}
		case d.Refused != "":
			w.t.Errorf("a probe is carried out that is refused: %s", d.Refused)
		case w.clock.Now().Sub(b.started) < d.InitialDelay:
			w.t.Errorf("an attempt %s after the start of the container, want %s later at least",
				w.clock.Now().Sub(b.started), d.InitialDelay)
		}
		return map[bool]Attempt{true: {Success, b.word}, false: {Failure, b.word}}[b.answers]
	}
}

func (w *world) id(b *box) string { return fmt.Sprintf("containerd://%d", b.id) }

// Containers implements Runtimes.
func (w *world) Containers(_ context.Context, pod string) ([]runtime.Container, error) {
	b := w.boxes[types.UID(pod)]
	if w.silent {
		return nil, runtime.ErrUnavailable
	}
	if b == nil || b.id == 0 {
		return nil, nil
	}
	return []runtime.Container{{ID: w.id(b), Name: "app", PodUID: pod, PodName: pod, PodNamespace: "db", Running: b.running, CreatedAt: b.started}}, nil
}

// Status implements Runtimes.
func (w *world) Status(context.Context, string) (runtime.Status, error) {
	if w.silent {
		return runtime.Status{}, runtime.ErrUnavailable
	}
	return runtime.Status{}, nil // the time of creation counts
}

func (w *world) npp() *appsv1alpha1.NodePodProbe {
	o := &appsv1alpha1.NodePodProbe{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: "n"}, o); err != nil {
		w.t.Fatal(err)
	}
	return o
}

// edit changes the spec, as the manager does.
func (w *world) edit(change func(*appsv1alpha1.NodePodProbe)) {
	w.again = time.Time{}
	o := w.npp()
	change(o)
	o.Generation++
	if err := w.client.Update(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// pass lets time go on, and the daemon act.
func (w *world) pass(d time.Duration) {
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); w.clock.Step(100 * time.Millisecond) {
		select {
		case <-w.daemon.changed:
			w.again = time.Time{}
		default:
		}
		if !w.again.After(w.clock.Now()) {
			result, err := w.daemon.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "n"}})
			if err != nil {
				result.RequeueAfter = 500 * time.Millisecond
			}
			if w.again = w.clock.Now().Add(result.RequeueAfter); result.RequeueAfter == 0 {
				w.again = w.clock.Now().Add(24 * time.Hour)
			}
		}
		for {
			turn, _ := w.daemon.schedule.Next(w.clock.Now())
			if turn == nil {
				break
			}
			w.daemon.take(w.t.Context(), turn)
		}
	}
}

func (w *world) podOf(i int) types.UID { return types.UID(fmt.Sprint("pod", i)) }

// replace makes a new container for a pod.
func (w *world) replace(pod types.UID) {
	w.ids++
	w.boxes[pod] = &box{id: w.ids, running: true, started: w.clock.Now(), answers: w.chance(0.5), word: fmt.Sprint("word", w.ids)}
	w.pods[string(pod)].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: w.id(w.boxes[pod])}}
}

func (w *world) act() {
	pods := w.npp().Spec.PodProbes
	if len(pods) == 0 || w.chance(0.1) && len(pods) < 6 {
		w.ids++
		uid := w.podOf(w.ids)
		w.pods[string(uid)] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: string(uid), UID: uid}}
		w.boxes[uid] = &box{}
		if w.chance(0.7) {
			w.replace(uid)
		}
		w.edit(func(o *appsv1alpha1.NodePodProbe) {
			entry := appsv1alpha1.PodProbe{Namespace: "db", Name: string(uid), UID: string(uid), IP: "10.0.0.1"}
			for i := range 1 + w.rand.IntN(3) {
				entry.Probes = append(entry.Probes, spec(named(fmt.Sprint("p#", i)), thresholds(int32(w.rand.IntN(4)), int32(w.rand.IntN(4)))))
			}
			o.Spec.PodProbes = append(o.Spec.PodProbes, entry)
		})
		return
	}
	i := w.rand.IntN(len(pods))
	uid := types.UID(pods[i].UID)
	b := w.boxes[uid]
	switch n := w.rand.IntN(100); {
	case n < 20:
		b.answers = !b.answers
	case n < 30:
		b.word = fmt.Sprint("word", n)
	case n < 40:
		w.replace(uid)
	case n < 50:
		b.running = false
	case n < 60:
		w.edit(func(o *appsv1alpha1.NodePodProbe) {
			probe := &o.Spec.PodProbes[i].Probes[0]
			probe.Probe.PeriodSeconds, probe.Probe.FailureThreshold = int32(w.rand.IntN(20)), int32(w.rand.IntN(5))
			if w.chance(0.3) {
				probe.Probe.Exec = &corev1.ExecAction{Command: []string{fmt.Sprint(n)}}
			}
		})
	case n < 66:
		w.edit(func(o *appsv1alpha1.NodePodProbe) {
			o.Spec.PodProbes = append(o.Spec.PodProbes[:i:i], o.Spec.PodProbes[i+1:]...)
		})
	case n < 74:
		w.start()
	case n < 80:
		w.refuses = !w.refuses
	case n < 85:
		w.silent = !w.silent
	}
}

// settled says what is not as it should be when nothing has changed for a while.
func (w *world) settled() string {
	o := w.npp()
	states := map[Key]appsv1alpha1.ContainerProbeState{}
	for _, pod := range o.Status.PodProbeStatuses {
		for _, state := range pod.ProbeStates {
			states[Key{types.UID(pod.UID), state.Name}] = state
		}
	}
	var wrong []string
	for _, d := range Definitions(o) {
		b, state := w.boxes[d.Pod], states[d.Key]
		delete(states, d.Key)
		want := appsv1alpha1.ContainerProbeState{State: "Failed", Message: b.word}
		switch {
		case b.id == 0:
			want = appsv1alpha1.ContainerProbeState{}
		case !b.running:
			want.Message = "container app is not running"
		case b.answers:
			want.State = "Succeeded"
		}
		if state.State != want.State || state.Message != want.Message {
			wrong = append(wrong, fmt.Sprintf("%v: %s %q, want %s %q", d.Key, state.State, state.Message, want.State, want.Message))
		}
	}
	for key := range states {
		wrong = append(wrong, fmt.Sprintf("%v: there is no such probe", key))
	}
	return strings.Join(wrong, "\n")
}

// TestSimulatedProbes plays containers that end, are replaced and change their minds, definitions that come,
// change and go, a daemon that dies, an API server and a runtime that do not answer: when that is over, the
// status says of each probe what its container answers now, and nothing is written at rest but once in ten
// minutes (PPM-080, PPM-083, PPM-085, PPM-090 (part), PPM-093, PPM-095, PPM-096).
func TestSimulatedProbes(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	simulationtest.Some(t, 50, 10, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed)
		for range 60 {
			w.act()
			w.pass(time.Duration(w.rand.IntN(3000)) * time.Millisecond)
		}
		w.refuses, w.silent = false, false
		w.pass(2 * time.Minute)
		if wrong := w.settled(); wrong != "" {
			t.Fatalf("after all has come to rest: %s", wrong)
		}
		writes := w.writes
		w.pass(9 * time.Minute)
		if n := w.writes - writes; n > 1 {
			t.Errorf("writes in nine minutes of rest: got %d, want 1 at most", n)
		}
	})
}
