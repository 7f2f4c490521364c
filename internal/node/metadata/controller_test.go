package metadata

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
	"github.com/afloat-project/afloat/internal/node/stop"
)

type world struct {
	t       *testing.T
	cri     *fakecri.Server
	api     client.Client
	r       *reconciler
	events  *record.FakeRecorder
	patches []string
}

func newWorld(t *testing.T, p *corev1.Pod) *world {
	t.Helper()
	w := &world{t: t, cri: fakecri.Start(t), events: record.NewFakeRecorder(99)}
	w.api = fake.NewClientBuilder().WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithScheme(clientgoscheme.Scheme).
		WithObjects(p).WithInterceptorFuncs(interceptor.Funcs{
		// The real API server accepts annotations in a patch of the status; the fake one does not.
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch,
			_ ...client.SubResourcePatchOption) error {
			body, _ := patch.Data(object)
			w.patches = append(w.patches, sub+" "+string(body))
			return c.Patch(ctx, object, patch)
		},
	}).Build()
	runtimes := runtime.NewSet(runtime.Options{Root: w.cri.Root()})
	runtimes.Look(t.Context())
	w.r = newReconciler(w.api, w.api, Options{Runtimes: runtimes, Events: w.events, Stops: stop.NewStops(), EnvFromMetadata: true})
	return w
}

func (w *world) add(name, image, env string, n int, annotations map[string]string) {
	w.cri.Add(fakecri.Container{ID: fmt.Sprintf("%s-%d", name, n), Name: name, Namespace: "ns", Pod: "p", UID: "u",
		State:   cri.ContainerState_CONTAINER_RUNNING,
		Created: time.Unix(int64(n), 0), RestartCount: n - 1, Hash: fmt.Sprintf("%x", number(inplace.PlainHash(name, image))), Image: image,
		Env: []string{"V=" + env}, Annotations: annotations})
}

func (w *world) reconcile() reconcile.Result {
	w.t.Helper()
	result, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}})
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// restart carries out one restart and waits for its end.
func (w *world) restart(t target) error {
	ended := make(chan error, 1)
	begun, err := w.r.restarts.restart(w.t.Context(), t, func(err error) { ended <- err })
	if err != nil || !begun {
		return err
	}
	return <-ended
}

func (w *world) pod() *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{}
	if err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: "ns", Name: "p"}, p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// ND-080, ND-069, ND-087, ND-092: one patch of the status subresource that holds the annotation alone,
// guarded; at rest nothing is written.
func TestReportIsOnePatch(t *testing.T) {
	w := newWorld(t, pod("a")) // IPU-129: through a patch of the status subresource; TestTriggers has when, and of which pods
	w.add("app", "app:1", "a", 1, nil)
	before := w.pod()
	w.reconcile()
	// A cache that is older than our write is not acted on.
	w.r.client = interceptor.NewClient(w.api.(client.WithWatch),
		interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, object client.Object,
			_ ...client.GetOption) error {
			before.DeepCopyInto(object.(*corev1.Pod))
			return nil
		}})
	w.r.own.Cache = w.r.client
	if result := w.reconcile(); len(w.patches) != 1 {
		t.Errorf("patches of the pod: got %d, want 1: %+v", len(w.patches), result)
	}
	w.r.client, w.r.own.Cache = w.api, w.api
	w.reconcile()
	w.reconcile()
	text := `{\"containers\":[{\"name\":\"app\",\"containerID\":\"containerd://app-1\",\"restartCount\":0,\"hashes\":{\"plainHash\":` +
		inplace.PlainHash("app", "app:1") + `,\"extractedEnvFromMetadataHash\":` + fmt.Sprint(hash("a")) + `}}]}`
	want := []string{`status {"metadata":{"annotations":{"` + pub.RuntimeContainersMeta + `":"` + text + `"},"resourceVersion":"` +
		before.ResourceVersion + `","uid":"u"}}`}
	if diff := cmp.Diff(want, w.patches); diff != "" {
		t.Errorf("patches of the pod (-want +got):\n%s", diff)
	}
}

// ND-106, IPU-310: an unreadable environment is absent from the report and read again with growing pauses; no
// container is stopped because of it.
func TestAnUnreadableEnvironmentStopsNoContainer(t *testing.T) {
	w := newWorld(t, pod("b", updatingPod))
	w.cri.Add(fakecri.Container{ID: "app-1", Name: "app", Namespace: "ns", Pod: "p", UID: "u", State: cri.ContainerState_CONTAINER_RUNNING,
		NoRecord: true})
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	w.r.clock = clock
	first := w.reconcile()
	clock.Step(3 * time.Second)
	second := w.reconcile()
	if first.RequeueAfter != 3*time.Second {
		t.Errorf("the second reading: after %s, want 3s", first.RequeueAfter)
	}
	if second.RequeueAfter != 6*time.Second {
		t.Errorf("the third reading: after %s, want 6s", second.RequeueAfter)
	}
	if len(w.patches) != 1 {
		t.Errorf("patches of the pod: got %v, want 1", w.patches)
	} else if strings.Contains(w.patches[0], "extracted") {
		t.Errorf("the report has a hash of the unreadable environment: %s", w.patches[0])
	}
	if len(w.r.restarts.wanted) > 0 {
		t.Errorf("restarts that are wanted: got %v, want none", w.r.restarts.wanted)
	}
	if calls := w.cri.Calls("StopContainer"); len(calls) > 0 {
		t.Errorf("stops: got %+v, want none", calls)
	}
}

// ND-106: if the record of the update says that the container's environment changed, the container is
// restarted although its environment cannot be read. Otherwise its pod would stay out of service for ever.
func TestUnreadableEnvironmentThatChanged(t *testing.T) {
	w := newWorld(t, pod("b", updatingPod, state(inplace.State{EnvContainers: map[string]string{"app": "containerd://app-1"}})))
	w.cri.Add(fakecri.Container{ID: "app-1", Name: "app", Namespace: "ns", Pod: "p", UID: "u", State: cri.ContainerState_CONTAINER_RUNNING,
		NoRecord: true,
		Hash:     fmt.Sprintf("%x", number(inplace.PlainHash("app", "app:1"))), Image: "app:1"})
	w.reconcile()
	if err := w.restart(target{types.NamespacedName{Namespace: "ns", Name: "p"}, "u", "app", "containerd://app-1"}); err != nil {
		t.Errorf("the restart: %v", err)
	}
	if len(w.r.restarts.wanted) != 1 {
		t.Errorf("restarts that are wanted: got %v, want 1", w.r.restarts.wanted)
	}
	if calls := w.cri.Calls("StopContainer"); len(calls) != 1 {
		t.Errorf("stops: got %+v, want 1", calls)
	} else if calls[0].ID != "app-1" {
		t.Errorf("the container that is stopped: got %s, want app-1", calls[0].ID)
	}
}

// ND-106: events of the pod, however many, do not make the next reading earlier; that of a new container is
// at once.
func TestUnreadableEnvironmentIsNotReadAtEveryEvent(t *testing.T) {
	w := newWorld(t, pod("b", updatingPod))
	clock := testclock.NewFakeClock(time.Unix(1000, 0))
	w.r.clock = clock
	c := fakecri.Container{ID: "app-1", Name: "app", Namespace: "ns", Pod: "p", UID: "u", State: cri.ContainerState_CONTAINER_RUNNING,
		NoRecord: true, Created: time.Unix(1, 0)}
	w.cri.Add(c)
	var after time.Duration
	for range 20 {
		after = w.reconcile().RequeueAfter
	}
	if n := len(w.cri.Calls("ExecSync")); n != 2 {
		t.Errorf("commands after many events: got %d, want 2", n)
	}
	if after <= 0 || after > 3*time.Second {
		t.Errorf("the next reading: after %s, want 3s at most", after)
	}
	clock.Step(3 * time.Second)
	after = w.reconcile().RequeueAfter
	if n := len(w.cri.Calls("ExecSync")); n != 4 {
		t.Errorf("commands after 3s: got %d, want 4", n)
	}
	if after != 6*time.Second {
		t.Errorf("the reading after the second: after %s, want 6s", after)
	}
	c.ID, c.Created, c.NoRecord, c.Env = "app-2", time.Unix(2, 0), false, []string{"V=b"}
	w.cri.Add(c)
	w.reconcile()
	if got := w.pod().Annotations[pub.RuntimeContainersMeta]; !strings.Contains(got, fmt.Sprint(hash("b"))) {
		t.Errorf("the report lacks the environment of the new container: %s", got)
	}
	if len(w.r.readings.held) > 0 {
		t.Errorf("readings that are remembered: got %v, want none", w.r.readings.held)
	}
}

// ND-110, ND-112, ND-114, ND-115, IPU-130, IPU-192, IPU-211: a changed environment restarts the container
// once, within the grace period and after the hook that kubelet recorded, and the report has the new one.
func TestChangedEnvironmentRestartsOnce(t *testing.T) {
	p := pod("b", updatingPod)
	w := newWorld(t, p)
	annotations := map[string]string{runtime.AnnotationTerminationGracePeriod: "7",
		runtime.AnnotationPreStop: `{"exec":{"command":["quit"]}}`}
	w.add("app", "app:1", "a", 1, annotations)
	w.cri.Set(func(s *fakecri.Server) {
		s.OnExec = func(string, []string) (string, int32, error) { return "", 0, nil }
		s.Restart = func(old fakecri.Container) *fakecri.Container {
			old.ID, old.Created, old.State, old.RestartCount, old.Env = "app-2", time.Unix(2, 0), cri.ContainerState_CONTAINER_RUNNING, 1,
				[]string{"V=b"}
			return &old
		}
	})
	w.reconcile()
	w.reconcile()
	target := target{types.NamespacedName{Namespace: "ns", Name: "p"}, "u", "app", "containerd://app-1"}
	if diff := cmp.Diff(1, len(w.r.restarts.wanted)); diff != "" {
		t.Fatalf("number of restarts that are wanted (-want +got):\n%s", diff)
	}
	if !w.r.restarts.wanted[target] {
		t.Fatalf("restarts that are wanted: got %v, want that of app-1", w.r.restarts.wanted)
	}
	if n := w.r.restarts.queue.NumRequeues(target); n != 1 {
		t.Fatalf("times that the restart was queued: got %d, want 1", n)
	}
	if err := w.restart(target); err != nil {
		t.Fatal(err)
	}
	if err := w.restart(target); err == nil {
		t.Error("the restart, a second time: no error")
	} else if !strings.Contains(err.Error(), errObsolete.Error()) {
		t.Errorf("the restart, a second time: got error %v, want %v", err, errObsolete)
	}
	if calls := w.cri.Calls("StopContainer"); len(calls) != 1 {
		t.Errorf("stops: got %+v, want 1", calls)
	} else if calls[0].ID != "app-1" || calls[0].Grace != 7*time.Second {
		t.Errorf("the stop: got %+v, want that of app-1 with 7s", calls[0])
	}
	if n := len(w.cri.Calls("ExecSync")); n != 1 {
		t.Errorf("commands of hooks: got %d, want 1", n)
	}
	if event := <-w.events.Events; event != "Normal Killing Stopping container app by the metadata restarter" {
		t.Errorf("event of the stop: got %q, want that app is stopped by the metadata restarter", event)
	}
	w.r.restarts.done(target)
	now := w.pod()
	now.Status.ContainerStatuses[0].ContainerID = "containerd://app-2"
	if err := w.api.Status().Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	got := w.pod().Annotations[pub.RuntimeContainersMeta]
	if !strings.Contains(got, `"containerd://app-2"`) {
		t.Errorf("the report lacks the new container: %s", got)
	}
	if !strings.Contains(got, fmt.Sprint(hash("b"))) {
		t.Errorf("the report lacks the new environment: %s", got)
	}
	if len(w.r.restarts.wanted) > 0 {
		t.Errorf("wanted again: %v", w.r.restarts.wanted)
	}
}

// ND-113, ND-116, ND-071, IPU-319: right before the stop the live pod and the runtime decide. A container is
// not stopped if it is gone, replaced, ended, of another pod, or if kubelet replaces it.
func TestRestartIsCheckedAgain(t *testing.T) {
	for name, change := range map[string]func(*world){
		"pod gone": func(w *world) { _ = w.api.Delete(w.t.Context(), w.pod()) },
		"update over": func(w *world) {
			p := w.pod()
			p.Status.Conditions[0].Status = corev1.ConditionTrue
			_ = w.api.Status().Update(w.t.Context(), p)
		},
		"image changed": func(w *world) {
			p := w.pod()
			p.Spec.Containers[1].Image = "app:2"
			_ = w.api.Update(w.t.Context(), p)
		},
		"container ended": func(w *world) {
			c := w.cri.Containers()[0]
			c.State = cri.ContainerState_CONTAINER_EXITED
			w.cri.Add(c)
		},
		"container gone": func(w *world) { w.cri.Remove("app-1") },
		"labels of another pod": func(w *world) {
			c := w.cri.Containers()[0]
			c.Namespace = "kube-system"
			w.cri.Add(c)
		},
		"environment is back": func(w *world) {
			p := w.pod()
			p.Labels["v"] = "a"
			_ = w.api.Update(w.t.Context(), p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, pod("b", updatingPod))
			w.add("app", "app:1", "a", 1, nil)
			w.reconcile()
			if len(w.r.restarts.wanted) != 1 {
				t.Fatal("no restart is wanted")
			}
			change(w)
			for target := range w.r.restarts.wanted {
				if err := w.restart(target); err == nil {
					t.Error("no error")
				}
			}
			if calls := w.cri.Calls("StopContainer"); len(calls) > 0 {
				t.Errorf("stops: got %+v, want none", calls)
			}
		})
	}
}

// ND-114: what kubelet recorded on the container decides, with defaults for missing values.
func TestWhatKubeletRecordedDecides(t *testing.T) {
	for want, annotations := range map[time.Duration]map[string]string{
		30 * time.Second: {},
		5 * time.Second:  {runtime.AnnotationTerminationGracePeriod: "5"},
		3 * time.Second:  {runtime.AnnotationTerminationGracePeriod: "5", runtime.AnnotationDeletionGracePeriod: "3"},
		// a value that a duration cannot hold becomes a long one
		timing.Seconds(math.MaxInt64): {runtime.AnnotationTerminationGracePeriod: "9223372036854775807"},
	} {
		if got := stop.GraceOf(annotations); got != want {
			t.Errorf("grace period recorded by %v: got %s, want %s", annotations, got, want)
		}
	}
	got := ports(map[string]string{runtime.AnnotationPorts: `[{"name":"web","containerPort":80}]`})
	if len(got) != 1 {
		t.Errorf("ports: got %+v, want 1", got)
	} else if got[0].ContainerPort != 80 {
		t.Errorf("port of the container: got %d, want 80", got[0].ContainerPort)
	}
	if hook := hook(map[string]string{runtime.AnnotationPreStop: "{"}); hook != nil {
		t.Errorf("an unreadable hook: got %+v, want none", hook)
	}
}

// ND-003: a new daemon finds in the pod and in the runtime all that the former one knew: what is reported
// already, and which container is to be restarted. It does not repeat a restart that the former one carried
// out. The simulations of restarts on request and of image pulls end the daemon in between too, and
// TestContainerIsConfined shows that the daemon has no place to store anything.
func TestTheNextDaemonGoesOn(t *testing.T) {
	w := newWorld(t, pod("b", updatingPod))
	w.add("app", "app:1", "a", 1, nil)
	w.add("side", "side:1", "", 2, nil)
	w.cri.Set(func(s *fakecri.Server) {
		s.Restart = func(old fakecri.Container) *fakecri.Container {
			old.ID, old.Created, old.State, old.RestartCount, old.Env = "app-2", time.Unix(2, 0), cri.ContainerState_CONTAINER_RUNNING, 1,
				[]string{"V=b"}
			return &old
		}
	})
	next := func() {
		runtimes := runtime.NewSet(runtime.Options{Root: w.cri.Root()})
		runtimes.Look(t.Context())
		w.r = newReconciler(w.api, w.api, Options{Runtimes: runtimes, Events: w.events, Stops: stop.NewStops(), EnvFromMetadata: true})
		w.reconcile()
	}
	target := target{types.NamespacedName{Namespace: "ns", Name: "p"}, "u", "app", "containerd://app-1"}
	w.reconcile()
	next()
	if len(w.patches) != 1 {
		t.Fatalf("patches before the restart: got %v, want 1", w.patches)
	}
	if wanted := w.r.restarts.wanted; len(wanted) != 1 || !wanted[target] {
		t.Fatalf("restarts that are wanted before the restart: got %v, want that of app-1", wanted)
	}
	if err := w.restart(target); err != nil {
		t.Fatal(err)
	}
	next()
	next()
	if len(w.r.restarts.wanted) != 0 {
		t.Errorf("restarts that are wanted after the restart: got %v, want none", w.r.restarts.wanted)
	}
	if calls := w.cri.Calls("StopContainer"); len(calls) != 1 {
		t.Errorf("stops: got %v, want 1", calls)
	}
	if len(w.patches) != 2 {
		t.Errorf("patches after the restart: got %v, want 2", w.patches)
	} else if !strings.Contains(w.patches[1], "containerd://app-2") {
		t.Errorf("the second report lacks the new container: %s", w.patches[1])
	}
}
