package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/simulation"
)

var wsName = types.NamespacedName{Namespace: "default", Name: "ws"}

// rests lets everything come to rest.
func rests(t *testing.T, s *simulated) {
	t.Helper()
	if err := s.Settle(500); err != nil {
		t.Fatal(err)
	}
}

func verbs(s *simulated) []string {
	var all []string
	for _, w := range s.Writes {
		all = append(all, w.Verb+" "+w.Key.Kind)
	}
	return all
}

// WS-130, WS-144, WS-160: pods that were there before are counted, and then get annotation, metadata and cost
// in one patch each.
func TestAdoptionIsOnePatchAPod(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 1, workloadspreadtest.Zone("a", "b", "c"),
		workloadspreadtest.Patches(`{"metadata":{"labels":{"pool":"a"}},"spec":{"priority":5}}`)),
		workloadspreadtest.Subset("b", nil, workloadspreadtest.Tolerates("x"))), 2)
	rests(t, s)
	if diff := cmp.Diff([]string{"patch WorkloadSpread", "patch Pod", "patch Pod"}, verbs(s)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	var got []string
	for _, pod := range s.AllPods() {
		got = append(got, pod.Labels["pool"]+" "+pod.Annotations[pub.PodDeletionCost]+" "+pod.Annotations[pub.MatchedWorkloadSpread])
		if pod.Spec.Priority != nil {
			t.Error("the spec of the patch reached a pod that was there")
		}
	}
	if diff := cmp.Diff([]string{`a 200 {"name":"ws","subset":"a"}`, ` 100 {"name":"ws","subset":"b"}`}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// counting counts what is read from the API server.
type counting struct {
	simReader
	whole *int
}

func (c counting) Whole(ctx context.Context, name types.NamespacedName) ([]byte, error) {
	*c.whole++
	return c.simReader.Whole(ctx, name)
}

// Pods that fit nowhere are read once, and again if their node, the WorkloadSpread or they change; not at
// every event (WS-141, WS-142).
func TestPodsThatFitNowhereAreReadOnce(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", nil, workloadspreadtest.Zone("elsewhere"))), 3)
	reads := 0
	s.pass.Reader = counting{s.reader, &reads}
	rests(t, s)
	for range 5 {
		s.Queue.Add()
		rests(t, s)
	}
	if reads != 3 {
		t.Errorf("%d reads of 3 pods", reads)
	}
	for _, pod := range s.AllPods() {
		if pod.Annotations[pub.PodDeletionCost] != "-200" { // WS-164
			t.Errorf("cost of deleting pod %s: got annotations %v, want -200", pod.Name, pod.Annotations)
		}
	}
	node := s.AllPods()[0].Spec.NodeName
	s.Change(simulation.Key{Kind: "Node", Name: node}, func(o client.Object) { o.SetLabels(map[string]string{"zone": "elsewhere"}) })
	s.Queue.Add()
	rests(t, s)
	n := 0
	for _, pod := range s.AllPods() {
		if pod.Annotations[pub.MatchedWorkloadSpread] != "" {
			n++
		}
	}
	if n == 0 {
		t.Errorf("n: got %d, want another value; %d pods fit now, %d reads", n, n, reads-3)
	}
	if n != reads-3 {
		t.Errorf("n: got %d, want %d", n, reads-3)
	}
}

// WS-144: with the user's annotation pods that were there keep their metadata.
func TestMetadataIsLeftAlone(t *testing.T) {
	spread := workloadspreadtest.Spread(workloadspreadtest.Subset("a", nil,
		workloadspreadtest.Patches(`{"metadata":{"labels":{"pool":"a"}}}`)))
	spread.Annotations = map[string]string{pub.IgnorePatchExistingPods: "TRUE"}
	s := simulate(1, spread, 1)
	rests(t, s)
	pod := s.AllPods()[0]
	if pod.Labels["pool"] != "" {
		t.Errorf("label pool of the pod: got %q, want %q\n%v\n%v", pod.Labels["pool"], "", pod.Labels,
			pod.Annotations)
	}
	if pod.Annotations[pub.MatchedWorkloadSpread] == "" {
		t.Errorf("annotation matched workload spread of the pod: got nothing, want some text\n%v\n%v", pod.Labels,
			pod.Annotations)
	}
}

// stuck is a cluster in which the first zone is full, and a pod waits for it.
func stuck(t *testing.T) *simulated {
	t.Helper()
	s := simulate(1, workloadspreadtest.Adaptive(workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2, workloadspreadtest.Zone("a")),
		workloadspreadtest.Subset("b", nil, workloadspreadtest.Zone("b"))), 60), 0)
	s.full["a"] = true
	rests(t, s)
	s.scale(1)
	for range 5 {
		s.Round()
	}
	s.Pass(61 * time.Second)
	return s
}

// WS-130, WS-175: no pod is given up before the status says that its subset is passed over.
func TestNoPodIsGivenUpBeforeTheStatusIsWritten(t *testing.T) {
	s := stuck(t)
	s.Refused = func(w simulation.Write) bool { return w.Key == spreadKey }
	s.Writes = nil
	s.Queue.Add()
	for range 5 {
		s.Round()
	}
	if got := verbs(s); slices.Contains(got, "delete Pod") {
		t.Fatalf("writes: got %q, want it not to contain %q", got, "delete Pod")
	}
	s.Refused = nil
	rests(t, s)
	if pod := s.active(); len(pod) != 1 || pod[0].Spec.NodeName != "node-b" { // WS-173: its replacement passes the subset over
		t.Errorf("pods: want one on node-b: %s", s.describe())
	}
}

// WS-174, WS-175, WS-204: events tell of pods that cannot be deleted, and of the end of the window, which is
// exact.
func TestGivingUpIsTold(t *testing.T) {
	s := stuck(t)
	s.Refused = func(w simulation.Write) bool { return w.Verb == "delete" }
	s.Queue.Add()
	s.Round()
	begin := s.Now()
	if len(s.Recorded) != 1 {
		t.Fatalf("number of events: got %d, want 1\n%q", len(s.Recorded), s.Recorded)
	} else if !strings.HasPrefix(s.Recorded[0], "Warning DeletePodFailed: 1 pod that cannot be scheduled could not be deleted: ") {
		t.Fatalf("first event: got %q, want it to begin with %q\n%q", s.Recorded[0],
			"Warning DeletePodFailed: 1 pod that cannot be scheduled could not be deleted: ", s.Recorded)
	}
	s.Refused, s.Recorded = nil, nil
	s.full["a"] = false
	rests(t, s)
	if diff := cmp.Diff([]string{"Normal RecoverSchedulable: new pods are put again into subset a"}, s.Recorded); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := s.Now().Sub(begin); got > workloadspread.UnschedulableWindow+2*time.Second {
		t.Errorf("time that it took: got %v, want at most %v", got,
			workloadspread.UnschedulableWindow+2*time.Second)
	}
}

// WS-152, WS-153, WS-166: what does not come, what does not go, and what cannot be written is told; many of
// one sort at once.
func TestWhatFailsIsTold(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 20, workloadspreadtest.Zone("a", "b", "c"))), 7)
	rests(t, s)
	s.Change(spreadKey, func(o client.Object) {
		list := o.(*appsv1beta1.WorkloadSpread).Status.VersionedSubsetStatuses["v1"]
		list[0].CreatingPods, list[0].DeletingPods = workloadspreadtest.Times{"lost": metav1.NewTime(s.Now())}, workloadspreadtest.Times{}
		for _, pod := range s.AllPods() {
			list[0].DeletingPods[pod.Name] = metav1.NewTime(s.Now())
		}
		list[0].MissingReplicas = 19
	})
	rests(t, s)
	want := []string{"Warning DeletePodFailed: 7 pods are still there more than 15s after their deletion was admitted: web-v1-001 of subset a, web-v1-002 of subset a, web-v1-003 of subset a, web-v1-004 of subset a, web-v1-005 of subset a and 2 more",
		"Warning CreatePodFailed: 1 pod was admitted more than 30s ago and never seen, so that its place is free again: lost of subset a"}
	if diff := cmp.Diff(want, s.Recorded); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	got := s.spread().Status.VersionedSubsetStatuses["v1"][0]
	if got.MissingReplicas != 13 {
		t.Errorf("missing replicas: got %d, want 13\n%+v", got.MissingReplicas, got)
	}
	if got.Replicas != 7 {
		t.Errorf("replicas: got %d, want 7\n%+v", got.Replicas, got)
	}
	s.Recorded = nil
	s.Refused = func(w simulation.Write) bool { return w.Key.Kind == "Pod" }
	s.Edit(func(spread *appsv1beta1.WorkloadSpread) {
		spread.Spec.Subsets = append(spread.Spec.Subsets, workloadspreadtest.Subset("b", nil))
	})
	s.Round()
	if len(s.Recorded) != 1 {
		t.Errorf("number of events: got %d, want 1\n%v\n%q", len(s.Recorded), s.Queue.Due(), s.Recorded)
	} else if !strings.HasPrefix(s.Recorded[0], "Warning PatchPodDeletionCostFailed: the deletion cost of 7 pods could not be written: ") {
		t.Errorf("first event: got %q, want it to begin with %q\n%v\n%q", s.Recorded[0],
			"Warning PatchPodDeletionCostFailed: the deletion cost of 7 pods could not be written: ", s.Queue.Due(), s.Recorded)
	} else if s.Queue.Due().IsZero() {
		t.Errorf("nothing is due: got true, want false\n%v\n%q", s.Queue.Due(), s.Recorded)
	}
	if s.spread().Status.ObservedGeneration != s.spread().Generation {
		t.Error("pods that cannot be written keep the bookings from being counted")
	}
	s.Refused = nil
	rests(t, s)
}

// failing has replicas that cannot be told.
type failing struct {
	simReader
	target *workloadspread.Target
}

func (f failing) Target(context.Context, *appsv1beta1.WorkloadSpread) (*workloadspread.Target, bool, error) {
	return f.target, true, nil
}

// target is what the reader makes of the Deployment.
func (s *simulated) target(t *testing.T) *workloadspread.Target {
	t.Helper()
	target, _, err := s.reader.Target(t.Context(), s.spread())
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// WS-133: such replicas fail the pass, are told once, and change nothing.
func TestReplicasThatCannotBeTold(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", "50%")), 2)
	target := s.target(t)
	target.DesiredError = errors.New("path spec.x: there is none")
	s.pass.Reader = failing{s.reader, target}
	for range 3 {
		if _, err := s.run(); err == nil {
			t.Error("the pass does not fail")
		}
	}
	if diff := cmp.Diff([]string{"Warning ReplicasUnknown: the replicas of Deployment web: path spec.x: there is none"},
		s.Recorded); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(s.Writes) > 0 {
		t.Errorf("writes: got %v, want none", s.Writes)
	}
	target.DesiredError = nil
	if _, err := s.run(); err != nil {
		t.Errorf("the pass: %v", err)
	}
	s.Events(1 << 20)
	target.DesiredError = errors.New("again")
	_, _ = s.run()
	if len(s.Recorded) != 2 {
		t.Error("what failed again is not told", s.Recorded)
	}
}

// WS-085: until the latest version is known pods are counted, not ranked, and the pass is tried again.
func TestAVersionThatIsNotKnownYet(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", nil)), 2)
	target := s.target(t)
	target.Latest, target.LatestError = "", errors.New("not yet")
	s.pass.Reader = failing{s.reader, target}
	if _, err := s.run(); err == nil {
		t.Error("the pass does not fail")
	}
	if got := s.spread().Status.SubsetStatuses; len(got) != 1 {
		t.Errorf("number of results: got %d, want 1\n%v", len(got), got)
	} else if got[0].Replicas != 2 {
		t.Errorf("replicas of the first result: got %d, want 2\n%v", got[0].Replicas, got)
	}
	for _, pod := range s.AllPods() {
		if _, ranked := pod.Annotations[pub.PodDeletionCost]; ranked {
			t.Error("ranked", pod.Annotations)
		}
	}
}

// WS-110, WS-178: bookings between plan and status write are kept.
func TestBookingsBesideTheStatusWriteAreKept(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 5, workloadspreadtest.Zone("a", "b", "c"))), 1)
	done := false
	s.AfterWrite = func(w simulation.Write) {
		if w.Key.Kind == "Pod" && !done { // after the plan, before the status
			done = true
			s.admit("v1")
		}
	}
	s.Manage()
	list := s.spread().Status.VersionedSubsetStatuses["v1"]
	if len(list) != 1 {
		t.Errorf("number listed: got %d, want 1\n%v", len(list), list)
	} else if list[0].Replicas != 1 {
		t.Errorf("replicas of the first of the list: got %d, want 1\n%v", list[0].Replicas, list)
	} else if len(list[0].CreatingPods) != 1 {
		t.Errorf("number of pods being created of the first of the list: got %d, want 1\n%v",
			len(list[0].CreatingPods), list)
	} else if list[0].MissingReplicas != 3 {
		t.Errorf("missing replicas of the first of the list: got %d, want 3\n%v", list[0].MissingReplicas, list)
	}
}

// Numbers that let nobody decide otherwise are written at most twice a second, free places at once (WS-195).
func TestStatusOfABurst(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", 50, workloadspreadtest.Zone("a"))), 0)
	rests(t, s)
	s.Pass(time.Minute)
	s.Queue.Add()
	rests(t, s)
	s.scale(20)
	s.Writes = nil
	for range 40 { // all within one instant
		s.Round()
	}
	n := 0
	for _, w := range s.Writes {
		if w.Key == spreadKey {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d writes of the status within an instant", n)
	}
	rests(t, s)
	s.Writes = nil
	pod := s.active()[0]
	s.Change(podKey(pod.Name), func(o client.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodFailed })
	s.Events(1 << 20)
	s.Manage()
	if got := s.spread().Status.SubsetStatuses[0]; got.MissingReplicas != 31 {
		t.Error("a free place is not told at once", got)
	}
}

// WS-131: nothing is done for one that is going, and what is remembered of it is forgotten.
func TestNothingIsDoneForOneThatIsGoing(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(workloadspreadtest.Subset("a", nil)), 2)
	s.Change(spreadKey, func(o client.Object) {
		now := metav1.NewTime(s.Now())
		o.SetDeletionTimestamp(&now)
		o.SetFinalizers([]string{"x"})
	})
	rests(t, s)
	if len(s.Writes) > 0 {
		t.Errorf("writes: got %v, want none", s.Writes)
	}
	before := s.AllPods()
	s.Remove(spreadKey)
	rests(t, s)
	if diff := cmp.Diff(before, s.AllPods()); diff != "" { // WS-005
		t.Errorf("pods (-before +after):\n%s", diff)
	}
	if outcome, err := s.run(); outcome.Plan != nil {
		t.Errorf("plan: got %v, want nil\n%+v\n%v", outcome.Plan, outcome, err)
	} else if err != nil {
		t.Errorf("unexpected error: %v\n%+v", err, outcome)
	}
}
