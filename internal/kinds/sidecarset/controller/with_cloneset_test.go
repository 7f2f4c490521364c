package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	clonesetcontroller "github.com/afloat-project/afloat/internal/kinds/cloneset/controller"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// workload is the real controller of CloneSets on the same simulated cluster, with a cache that shows what
// this manager's shows. Its pods get the sidecars when they are made.
type workload struct {
	s          *simulated
	controller *clonesetcontroller.Controller
	due        time.Time
}

var workloadKey = simulation.Key{Kind: "CloneSet", Name: "web"}

func newWorkload(s *simulated, replicas int32) *workload {
	set := &appsv1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: workloadKey.Name}}
	set.Spec.Replicas = &replicas
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateCloneSetUpdateStrategyType
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1beta1.RollingUpdateCloneSetStrategy{PodUpdatePolicy: appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy, MaxUnavailable: new(intstr.FromInt32(1))}
	appImage(1)(set)
	s.Store(workloadKey, set)
	if err := errors.Join(clonesetcontroller.Index(context.Background(), s.Cluster),
		podapply.IndexRevisions(context.Background(), s.Cluster)); err != nil {
		panic(err)
	}
	w := &workload{s: s}
	w.start()
	return w
}

func appImage(version int) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		document := fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"app:%d"}]}}`, version)
		if err := set.Spec.Template.UnmarshalJSON([]byte(document)); err != nil {
			panic(err)
		}
	}
}

func (w *workload) start() {
	w.due = w.s.Now()
	api := reconcile.NewAPI(sidecars{w.s.Client(), w.s}, w.s.APIReader(), slim.Any, w.s.Now)
	w.controller = clonesetcontroller.New(&clonesetcontroller.Kind{
		Kube:   &clonesetcontroller.Kube{Reader: podapply.Reader{API: api, Pods: w.s.Pods()}},
		Random: rand.New(rand.NewPCG(1, 1)).IntN,
	}, w)
}

func (w *workload) manage() {
	set := w.s.Cached(workloadKey)
	if set == nil {
		return
	}
	if _, outcome, err := w.controller.Run(context.Background(), client.ObjectKeyFromObject(set), set.GetUID()); err == nil && outcome.After > 0 {
		w.due = w.s.Now().Add(outcome.After)
	}
}

func (w *workload) change(change func(*appsv1beta1.CloneSet)) {
	w.s.Change(workloadKey, func(o client.Object) {
		change(o.(*appsv1beta1.CloneSet))
		o.SetGeneration(o.GetGeneration() + 1)
	})
}

func (w *workload) Event(client.Object, string, string, string) {}

// sidecars is a client that adds the sidecars to pods that are created, as the webhook does.
type sidecars struct {
	client.Client
	s *simulated
}

func (c sidecars) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if document, ok := object.(*unstructured.Unstructured); ok && document.GetKind() == "Pod" {
		wanted := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(document.Object, wanted); err != nil {
			return err
		}
		pod := sidecarsettest.Pod(c.s.set(), wanted.Name, theirs)
		pod.APIVersion, pod.Kind = "v1", "Pod"
		pod.Spec.Containers = append(pod.Spec.Containers[:len(pod.Spec.Containers)-1], wanted.Spec.Containers...)
		pod.Spec.ReadinessGates, pod.OwnerReferences, pod.Labels = wanted.Spec.ReadinessGates, wanted.OwnerReferences, wanted.Labels
		maps.Copy(pod.Annotations, wanted.Annotations)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		if err != nil {
			return err
		}
		document.Object = content
	}
	return c.Client.Create(ctx, object, options...)
}

// TestSimulatedBesideCloneSet: the real controllers of CloneSets and SidecarSets update the same pods in place
// at the same time, with caches that lag, conflicts, lost answers and managers that die. Both arrive, no pod is
// replaced, and then neither writes (SS-250, SS-229, SS-D01).
func TestSimulatedBesideCloneSet(t *testing.T) {
	simulationtest.Some(t, 60, 5, func(t *testing.T, seed uint64) {
		set := sidecarsettest.Set()
		if seed%2 == 0 {
			set = sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1")))
		}
		s := simulate(seed, set, 0)
		w := newWorkload(s, 3)
		s.Others = func() bool {
			before := len(s.Writes)
			w.manage()
			return len(s.Writes) > before || w.due.After(s.Now()) &&
				func() bool { s.Pass(w.due.Sub(s.Now())); w.due = time.Time{}; return true }()
		}
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
		uids := map[types.UID]bool{}
		for _, pod := range s.AllPods() {
			uids[pod.UID] = true
		}
		s.Faults = simulation.Faults{Refuse: 0.03, Lose: 0.03, Die: 0.02}
		version := 1
		for range 300 {
			switch n := s.Rand.IntN(100); {
			case n < 20:
				s.Manage()
			case n < 40:
				w.manage()
			case n < 60:
				s.Events(1 + s.Rand.IntN(6))
			case n < 90:
				s.Node.Step(s.AllPods()[s.Rand.IntN(len(s.AllPods()))].Name)
			case n < 94:
				s.Pass(time.Second)
			case n < 96:
				version++
				s.change(sidecarsettest.Image("proxy", fmt.Sprintf("proxy:%d", version)))
			case n < 98:
				version++
				w.change(appImage(version))
			}
			if s.Dead() {
				s.Start()
				w.start()
			}
		}
		s.change(sidecarsettest.Image("proxy", "proxy:last"))
		w.change(appImage(99))
		if err := s.Settle(3000); err != nil {
			t.Fatal(err)
		}
		if len(s.AllPods()) != 3 {
			t.Fatalf("%d pods", len(s.AllPods()))
		}
		for _, pod := range s.AllPods() {
			working := "proxy"
			if seed%2 == 0 {
				w, err := sidecarset.ReadWorkingContainers(pod.Annotations["kruise.io/sidecarset-working-hotupgrade-container"])
				if err != nil {
					t.Fatal(err)
				}
				working = w["proxy"]
			}
			if !uids[pod.UID] {
				t.Errorf("the UID was there before: got false, want true; pod %s: app %s, proxy %s, ready %v, the same %v", pod.Name,
					sidecarset.ImageOf(pod, "app"), sidecarset.ImageOf(pod, working), readiness.Ready(pod), uids[pod.UID])
			}
			if got := sidecarset.ImageOf(pod, "app"); got != "app:99" {
				t.Errorf(`image of app: got %q, want %q; pod %s: app %s, proxy %s, ready %v, the same %v`, got,
					"app:99", pod.Name,
					sidecarset.ImageOf(pod, "app"), sidecarset.ImageOf(pod, working), readiness.Ready(pod), uids[pod.UID])
			}
			if got := sidecarset.ImageOf(pod, working); got != "proxy:last" {
				t.Errorf("image of the container that works: got %q, want %q; pod %s: app %s, proxy %s, ready %v, the same %v", got, "proxy:last",
					pod.Name, sidecarset.ImageOf(pod, "app"), sidecarset.ImageOf(pod, working), readiness.Ready(pod), uids[pod.UID])
			}
			if !readiness.Ready(pod) {
				t.Errorf("the pod is ready: got false, want true; pod %s: app %s, proxy %s, ready %v, the same %v",
					pod.Name,
					sidecarset.ImageOf(pod, "app"), sidecarset.ImageOf(pod, working), readiness.Ready(pod), uids[pod.UID])
			}
		}
		s.Writes = nil
		s.Queue.Add()
		if err := s.Settle(100); err != nil {
			t.Errorf("written at rest: coming to rest: unexpected error: %v\n%v", err, s.Writes)
		} else if len(s.Writes) > 0 {
			t.Errorf("written at rest: writes: got %v, want none\n%v", s.Writes, err)
		}
	})
}
