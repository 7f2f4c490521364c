package controller

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

var update = flag.Bool("update", false, "write the golden narratives")

// tale is a rollout whose every plan is written down.
type tale struct {
	*simulated
	t    *testing.T
	text simulationtest.Narrative
}

func (n *tale) note(plan *cloneset.Plan, _ podapply.Outcome) {
	n.text.Plan(n.Now(), plan.Headline())
}

// then lets the user do something and everything come to rest.
func (n *tale) then(title string, do func(*appsv1beta1.CloneSet)) {
	n.t.Helper()
	fmt.Fprintf(&n.text, "\n# %s\n", title)
	if do != nil {
		n.Edit(do)
	}
	n.rest()
}

func (n *tale) rest() {
	n.t.Helper()
	if err := n.Settle(500); err != nil {
		n.t.Fatal(err)
	}
	status := n.set().Status
	fmt.Fprintf(&n.text, "\nAt rest: %d pods, %d ready, %d available; %d updated, %d expected.\n", status.Replicas, status.ReadyReplicas,
		status.AvailableReplicas, status.UpdatedReplicas, status.ExpectedUpdatedReplicas)
	for _, c := range status.Conditions {
		fmt.Fprintf(&n.text, "Condition %s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
}

// TestNarratives plays rollouts and compares every plan, as printed, with a golden file; -update writes them.
func TestNarratives(t *testing.T) {
	reCreate := clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)
	tales := map[string]story{
		"create and scale": {clonesettest.Set(3), func(n *tale) { // CS-040, CS-111, CS-113
			n.then("replicas 5", clonesettest.Replicas(5))
			n.then("replicas 2", clonesettest.Replicas(2))
		}},
		"image in place": {clonesettest.Set(3), func(n *tale) { // CS-120, CS-124, IPU-210
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
		}},
		"image in place, all at once": {clonesettest.Set(3,
			clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.MaxUnavailable = new(intstr.FromString("100%")) })),
			func(n *tale) {
				n.then("image nginx:2", clonesettest.Image("nginx:2"))
			}},
		"recreate by policy": {clonesettest.Set(3, reCreate), func(n *tale) { // CS-126
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
		}},
		"recreate as fallback": {clonesettest.Set(2), func(n *tale) { // CS-127, IPU-213
			n.then("env changed", clonesettest.Env("x"))
		}},
		"in place only refuses": {clonesettest.Set(2, clonesettest.Policy(appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy)),
			func(n *tale) { // IPU-173
				n.then("env changed", clonesettest.Env("x"))
				n.then("env taken back, image changed", clonesettest.Image("nginx:2")) // CS-225: the condition vanishes
			}},
		"partition": {clonesettest.Set(5, clonesettest.Partition(3)), func(n *tale) { // CS-090, CS-221, CS-270
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
			n.then("partition 0", clonesettest.Partition(0))
		}},
		"grace period": {clonesettest.Set(2, clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
			s.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: 10}
		})), func(n *tale) { // IPU-106, IPU-107
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
		}},
		"paused and resumed": {clonesettest.Set(2), func(n *tale) { // CS-122, CS-276 (part)
			n.then("image nginx:2 while paused", clonesettest.Both(clonesettest.Image("nginx:2"),
				clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Paused = true })))
			n.then("resumed", clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.Paused = false }))
		}},
		"minReadySeconds": {clonesettest.Set(2, func(set *appsv1beta1.CloneSet) { set.Spec.MinReadySeconds = 30 }),
			func(n *tale) { // CS-170, CS-171
				n.then("image nginx:2", clonesettest.Image("nginx:2"))
			}},
		"another tag of the same digest": {clonesettest.Set(2), func(n *tale) { // IPU-300
			n.Node.Digests["nginx:1-same"], n.Node.Digests["nginx:1"] = "a", "a"
			n.then("image nginx:1-same", clonesettest.Image("nginx:1-same"))
		}},
		"metadata alone": {clonesettest.Set(2), func(n *tale) { // IPU-034, IPU-090, IPU-214, IPU-308
			n.then("an annotation is added", func(set *appsv1beta1.CloneSet) {
				clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web"},"annotations":{"note":"new"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
			})
		}},
		// CS-061, CS-062, CS-271, IPU-046, IPU-049, IPU-215
		"claims stay in place and go with recreation": {clonesettest.Set(2, clonesettest.Claims("1Gi")), func(n *tale) {
			n.then("image nginx:2: claims stay", clonesettest.Image("nginx:2"))
			n.then("storage alone: nothing happens", clonesettest.Claims("2Gi"))
			n.then("image nginx:3: the claim templates differ now, pods and claims are replaced", clonesettest.Image("nginx:3"))
		}},
		"surge when nothing may be unavailable": {clonesettest.Set(2, reCreate, clonesettest.Surge(1, 0)), func(n *tale) { // CS-100, CS-101
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
		}},
		"no surge for what changes in place": {clonesettest.Set(3, clonesettest.Surge(3, 1)), func(n *tale) { // CS-102, CS-279, CS-330
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
		}},
		"on delete": {clonesettest.Set(2, func(set *appsv1beta1.CloneSet) {
			set.Spec.UpdateStrategy.Type = appsv1beta1.OnDeleteCloneSetUpdateStrategyType
		}), func(n *tale) { // CS-122, CS-277
			n.then("image nginx:2: nothing happens", clonesettest.Image("nginx:2"))
			fmt.Fprintf(&n.text, "\n# a pod is deleted by hand\n")
			n.EndGracefully(podKey(n.AllPods()[0].Name))
			n.rest()
		}},
		"pods to delete": {clonesettest.Set(3), func(n *tale) { // CS-130 to 134, CS-273
			name := n.AllPods()[1].Name
			n.then("one pod is to be deleted, replicas unchanged: it is replaced", func(set *appsv1beta1.CloneSet) {
				set.Spec.ScaleStrategy.PodsToDelete = []string{name}
			})
			name = n.AllPods()[2].Name
			n.then("one pod is to be deleted, replicas 2: it goes first",
				clonesettest.Both(clonesettest.Replicas(2), func(set *appsv1beta1.CloneSet) {
					set.Spec.ScaleStrategy.PodsToDelete = []string{name}
				}))
		}},
		"a bad image stops the rollout and is mended": {clonesettest.Set(3), func(n *tale) { // CS-124, CS-278
			n.Node.Digests["nginx:bad"] = ""
			n.then("image nginx:bad", clonesettest.Image("nginx:bad"))
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
		}},
		"rollback keeps the revision's name": {clonesettest.Set(2), func(n *tale) { // CS-083, CS-275
			n.then("image nginx:2", clonesettest.Image("nginx:2"))
			n.then("image nginx:1 again", clonesettest.Image("nginx:1"))
		}},
		// CS-094, CS-111
		"creation throttled": {clonesettest.Set(5, func(set *appsv1beta1.CloneSet) { set.Spec.ScaleStrategy.MaxUnavailable = new(intstr.FromInt32(2)) }),
			func(*tale) {}},
	}
	maps.Copy(tales, scaleDefects())
	maps.Copy(tales, updateDefects())
	maps.Copy(tales, budgetTales())
	for name, tt := range tales {
		t.Run(name, func(t *testing.T) {
			n := &tale{t: t, simulated: simulate(7, tt.set, cloneset.Features{RecreateOnClaimChange: true, PreparingUpdateAsUpdate: true,
				InPlace: inplace.Options{EnvFromMetadata: true, Resize: true}})}
			n.Planned, n.Node.Daemon = n.note, true
			n.Node.Digests["nginx:bad"] = ""
			n.then(fmt.Sprintf("%d pods are created", *tt.set.Spec.Replicas), nil)
			tt.play(n)
			simulationtest.Golden(t, name, n.text.String(), n.Recorded, *update)
		})
	}
}

// TestThreeWritesPerPodInPlace counts the writes of a rollout: two for a new pod, three for an update in
// place (docs/decisions/0005).
func TestThreeWritesPerPodInPlace(t *testing.T) {
	const pods = 4
	s := simulate(3, clonesettest.Set(pods), cloneset.Features{})
	count := func(what string, want int) {
		t.Helper()
		if err := s.Settle(500); err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, w := range s.Writes {
			if w.Key.Kind == "Pod" {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: %d writes of pods, want %d: %v", what, got, want, s.Writes)
		}
		s.Writes = nil
	}
	count("creation", 2*pods)
	s.Edit(clonesettest.Image("nginx:2"))
	count("update in place", 3*pods)
	for _, pod := range s.AllPods() {
		if pod.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("pod %s has %d restarts, want 1", pod.Name, pod.Status.ContainerStatuses[0].RestartCount)
		}
	}
}

// TestALateReportOfTheNodeIsTakenBack: a kubelet that is behind reports a pod ready that was just taken out of service.
// The image is not written on top of that: the pod is taken out of service once more, which is one write more.
func TestALateReportOfTheNodeIsTakenBack(t *testing.T) {
	s := simulate(3, clonesettest.Set(1), cloneset.Features{})
	if err := s.Settle(500); err != nil {
		t.Fatal(err)
	}
	s.Writes = nil
	late := false
	s.Answer = func(r *simulation.Request) error {
		pod := s.AllPods()[0]
		if r.Verb != "patch" || r.Key.Kind != "Pod" {
			return nil
		}
		held := readiness.Condition(pod, pub.InPlaceUpdateReady).Status == corev1.ConditionFalse
		switch {
		case held && !late:
			late = true
			s.Change(r.Key, func(o client.Object) {
				*readiness.Condition(o.(*corev1.Pod), corev1.PodReady) = corev1.PodCondition{
					Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.Now())}
			})
		case strings.Contains(string(r.Body), "nginx:2") && readiness.Condition(pod, corev1.PodReady).Status == corev1.ConditionTrue:
			t.Errorf("the image is written into a pod that is ready: %s", r.Body)
		}
		return nil
	}
	s.Edit(clonesettest.Image("nginx:2"))
	if err := s.Settle(500); err != nil {
		t.Fatal(err)
	}
	if n := len(slices.DeleteFunc(s.Writes, func(w simulation.Write) bool { return w.Key.Kind != "Pod" })); !late || n != 4 {
		t.Errorf("%d writes of the pod, want 4; a late report: %t: %v", n, late, s.Writes)
	}
	if pod := s.AllPods()[0]; pod.Spec.Containers[0].Image != "nginx:2" || !readiness.Ready(pod) {
		t.Errorf("the pod is not updated and ready: %v %v", pod.Spec.Containers[0].Image, pod.Status.Conditions)
	}
}

// TestUnknownFieldsReachThePodAndSurvive: a field that our types do not know is in the body of the request
// that creates the pod, and an unrelated update does not touch it (CS-016, CS-359, docs/decisions/0001).
func TestUnknownFieldsReachThePodAndSurvive(t *testing.T) {
	set := clonesettest.Set(1)
	clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web"}},"spec":{"future":{"x":[1,2]},"containers":[{"name":"nginx","image":"nginx:1","futureField":"kept"}]}}`)
	s := simulate(1, set, cloneset.Features{})
	snapshot := cloneset.Snapshot{Set: set, Snapshot: podplan.Snapshot{Now: s.Now()}, Random: s.Rand.IntN}
	plan := cloneset.Make(snapshot)
	spec := plan.Create[0].Pod["spec"].(map[string]any)
	container := spec["containers"].([]any)[0].(map[string]any)
	if container["futureField"] != "kept" {
		t.Errorf("the request does not carry the unknown fields: container futureField: got %v, want %q\n%v",
			container["futureField"],
			"kept", spec)
	}
	if spec["future"] == nil {
		t.Errorf("the request does not carry the unknown fields: spec future: got nil, want a value\n%v", spec)
	}
	if !strings.Contains(string(plan.NewRevision.Data.Raw), `"futureField":"kept"`) {
		t.Errorf("the revision does not store the unknown field: %s", plan.NewRevision.Data.Raw)
	}
	changed := set.DeepCopy()
	clonesettest.SetTemplate(changed, `{"metadata":{"labels":{"app":"web"}},"spec":{"future":{"x":[1,3]},"containers":[{"name":"nginx","image":"nginx:1","futureField":"kept"}]}}`)
	again := cloneset.Make(cloneset.Snapshot{Set: changed, Snapshot: podplan.Snapshot{Now: s.Now()}, Random: s.Rand.IntN})
	if again.UpdateRevision == plan.UpdateRevision {
		t.Error("a change of an unknown field is no new revision")
	}
}
