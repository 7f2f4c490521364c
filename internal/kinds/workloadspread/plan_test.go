package workloadspread

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// controlledBy gives a pod another controller.
func controlledBy(kind string, labels map[string]string) workloadspreadtest.PodOption {
	return func(p *corev1.Pod) { p.OwnerReferences[0].Kind, p.Labels = kind, labels }
}

// TestPlan compares plans as they print themselves.
func TestPlan(t *testing.T) {
	ab := func() *appsv1beta1.WorkloadSpread {
		return workloadspreadtest.Spread(workloadspreadtest.Subset("a", 1), workloadspreadtest.Subset("b", nil))
	}
	target := func(change func(*Target)) *Target { target := webTarget(2); change(target); return target }
	fits := func(pods ...string) map[types.UID][]Fit {
		all := map[types.UID][]Fit{}
		for _, pod := range pods {
			all[types.UID("uid-"+pod)] = []Fit{{0, 0}, {1, 0}}
		}
		return all
	}
	lists := func(spread *appsv1beta1.WorkloadSpread,
		lists map[string][]appsv1beta1.WorkloadSpreadSubsetStatus) *appsv1beta1.WorkloadSpread {
		spread.Status.VersionedSubsetStatuses = lists
		return spread
	}
	for name, test := range map[string]struct {
		snapshot Snapshot
		want     string
	}{
		"WS-131 it is being deleted": {Snapshot{Spread: func() *appsv1beta1.WorkloadSpread {
			s := ab()
			now := workloadspreadtest.At(0)
			s.DeletionTimestamp = &now
			return s
		}(), Target: webTarget(2), Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("a"))}},
			`WorkloadSpread default/ws: nothing is done: it is being deleted`},
		"WS-133 replicas that cannot be told": {Snapshot{Spread: ab(),
			Target: target(func(t *Target) { t.DesiredError = errors.New(`path spec.x: there is no "x"`) })},
			`WorkloadSpread default/ws: nothing is done: the replicas of Deployment web: path spec.x: there is no "x"`},
		"WS-157 a quota that cannot be computed": {Snapshot{Spread: workloadspreadtest.Spread(workloadspreadtest.Subset("a", "x%")),
			Target: webTarget(2)},
			`WorkloadSpread default/ws: nothing is done: quota of subset "a": "x%" is not an integer percentage`},
		"WS-023 no target": {Snapshot{Spread: workloadspreadtest.Spread(workloadspreadtest.Subset("a", "50%"),
			workloadspreadtest.Subset("b", nil)),
			Target: &Target{Reference: Reference{workloadkind.Deployment, "web"}}},
			`WorkloadSpread default/ws: Deployment web does not exist
  all versions, subset a: 0 pods of 0, 0 missing
  all versions, subset b: 0 pods`},
		"WS-132 pods that are there while none shall be": {Snapshot{Spread: workloadspreadtest.Spread(workloadspreadtest.Subset("a", "50%"),
			workloadspreadtest.Subset("b", nil)),
			Target: webTarget(0), Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("a")),
				workloadspreadtest.Pod("q", workloadspreadtest.In("b"))}},
			`WorkloadSpread default/ws: Deployment web wants 0, has 2, 2 ranked
  all versions, subset a: 1 pod of 0, 0 missing
  all versions, subset b: 1 pod
  version v1, subset a: 1 pod of 0, 0 missing
  version v1, subset b: 1 pod
  pod p: deletion cost -100, was "": more than the 0 of subset a
  pod q: deletion cost 100, was "": subset b is 2 of 2`},
		"WS-160 costs that are right are not written, others are": {Snapshot{Spread: ab(), Target: webTarget(2),
			Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("a"), workloadspreadtest.Cost("200")),
				workloadspreadtest.Pod("q", workloadspreadtest.In("b"), workloadspreadtest.Cost("7"))}},
			`WorkloadSpread default/ws: Deployment web wants 2, has 2, 1 ranked
  all versions, subset a: 1 pod of 1, 0 missing
  all versions, subset b: 1 pod
  version v1, subset a: 1 pod of 1, 0 missing
  version v1, subset b: 1 pod
  pod q: deletion cost 100, was "7": subset b is 2 of 2`},
		"WS-140 WS-146 WS-164 a subset that is none any more": {Snapshot{Spread: ab(), Target: webTarget(1),
			Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("removed"))}, Fits: fits("q")},
			`WorkloadSpread default/ws: Deployment web wants 1, has 1, 1 ranked
  all versions, subset a: 0 pods of 1, 1 missing
  all versions, subset b: 0 pods
  version v1, subset a: 0 pods of 1, 1 missing
  version v1, subset b: 0 pods
  pod p: in no subset, none fits its node n
  pod p: deletion cost -300, was "": it is in no subset`},
		"WS-141 WS-143 WS-145 pods that were there before": {Snapshot{Spread: ab(), Target: target(func(t *Target) { t.Costs = false }),
			Fits: map[types.UID][]Fit{"uid-old": {{0, 0}, {1, 0}}, "uid-new": {{0, 0}, {1, 0}}, "uid-third": {{0, 0}},
				"uid-other": {{1, 0}}},
			Pods: []*corev1.Pod{workloadspreadtest.Pod("new", workloadspreadtest.Born(-10)),
				workloadspreadtest.Pod("old", workloadspreadtest.Born(-20)), workloadspreadtest.Pod("third", workloadspreadtest.Born(-5)),
				workloadspreadtest.Pod("other", workloadspreadtest.Born(-4),
					workloadspreadtest.Note(pub.MatchedWorkloadSpread, `{"name":"another","subset":"a"}`)),
				workloadspreadtest.Pod("broken", workloadspreadtest.Born(-3), workloadspreadtest.Note(pub.MatchedWorkloadSpread, "{")),
				workloadspreadtest.Pod("homeless", workloadspreadtest.Born(-2), workloadspreadtest.Homeless), workloadspreadtest.Pod("lost",
					workloadspreadtest.Born(-1), func(p *corev1.Pod) { p.Spec.NodeName = "x" })},
			NodeUnknown: map[types.UID]bool{"uid-lost": true}},
			`WorkloadSpread default/ws: Deployment web wants 2, has 7, 4 adopted
  all versions, subset a: 2 pods of 1, 0 missing
  all versions, subset b: 2 pods
  version v1, subset a: 2 pods of 1, 0 missing
  version v1, subset b: 2 pods
  pod broken: in no subset, none fits its node n
  pod homeless: in no subset, it has no node
  pod lost: in no subset, its node x is not known
  pod old: adopted into subset a, which fits its node n
  pod new: adopted into subset b, which fits its node n
  pod third: adopted into subset a, which fits its node n
  pod other: adopted into subset b, which fits its node n
  again at 00:00:10.000: a node is looked for again`},
		"WS-080 WS-084 WS-163 WS-196 two versions": {Snapshot{Spread: ab(), Target: webTarget(2),
			Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("a")),
				workloadspreadtest.Pod("q", workloadspreadtest.In("b")),
				workloadspreadtest.Pod("r", workloadspreadtest.In("a"), workloadspreadtest.Version("v0")),
				workloadspreadtest.Pod("s", workloadspreadtest.In("b"), workloadspreadtest.Version("v0"))}},
			`WorkloadSpread default/ws: Deployment web wants 2, has 4, 4 ranked
  all versions, subset a: 2 pods of 1, 0 missing
  all versions, subset b: 2 pods
  version v0, subset a: 1 pod of 1, 0 missing
  version v0, subset b: 1 pod
  version v1, subset a: 1 pod of 1, 0 missing
  version v1, subset b: 1 pod
  pod p: deletion cost 200, was "": subset a is 1 of 2
  pod q: deletion cost 100, was "": subset b is 2 of 2
  pod r: deletion cost 100, was "": subset a is 2 of 2, in mirrored order since v0 is not the latest version
  pod s: deletion cost 200, was "": subset b is 1 of 2, in mirrored order since v0 is not the latest version`},
		"WS-085 the latest version is not known yet": {Snapshot{Spread: ab(), Target: target(func(t *Target) {
			t.Latest, t.LatestError = "",
				errors.New("it has no ReplicaSet yet")
		}), Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("a"))}},
			`WorkloadSpread default/ws: Deployment web wants 2, has 1: the latest version of Deployment web: it has no ReplicaSet yet
  all versions, subset a: 1 pod of 1, 0 missing
  all versions, subset b: 0 pods
  version v1, subset a: 1 pod of 1, 0 missing
  version v1, subset b: 0 pods`},
		"WS-168 no costs for a StatefulSet": {Snapshot{Spread: ab(), Target: &Target{Reference: Reference{workloadkind.StatefulSet, "web"}, Exists: true,
			Desired: 1}, Pods: []*corev1.Pod{workloadspreadtest.Pod("web-0", workloadspreadtest.In("a"), controlledBy("StatefulSet", nil))}},
			`WorkloadSpread default/ws: StatefulSet web wants 1, has 1
  all versions, subset a: 1 pod of 1, 0 missing
  all versions, subset b: 0 pods
  version versionIgnored, subset a: 1 pod of 1, 0 missing
  version versionIgnored, subset b: 0 pods`},
		"WS-206 (part) a custom kind is ranked as one version": {Snapshot{Spread: ab(),
			Target: &Target{Reference: Reference{schema.GroupKind{Group: "x.io", Kind: "Rollout"}, "web"}, Exists: true, Desired: 2,
				Costs: true},
			Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("a")),
				workloadspreadtest.Pod("q", workloadspreadtest.In("a"), workloadspreadtest.Version("v2"), workloadspreadtest.Born(-10))}},
			`WorkloadSpread default/ws: Rollout web wants 2, has 2, 2 ranked
  all versions, subset a: 2 pods of 1, 0 missing
  all versions, subset b: 0 pods
  version v1, subset a: 1 pod of 1, 0 missing
  version v1, subset b: 0 pods
  version v2, subset a: 1 pod of 1, 0 missing
  version v2, subset b: 0 pods
  pod p: deletion cost 200, was "": subset a is 1 of 2
  pod q: deletion cost -100, was "": more than the 1 of subset a`},
		"WS-083 a CloneSet without versions": {Snapshot{Spread: ab(),
			Target: &Target{Reference: Reference{workloadkind.CloneSet, "web"}, Exists: true, Desired: 2, Costs: true},
			Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("a"),
				controlledBy("CloneSet", map[string]string{pub.ControllerRevisionHash: "web-1"}))}},
			`WorkloadSpread default/ws: CloneSet web wants 2, has 1, 1 ranked
  all versions, subset a: 1 pod of 1, 0 missing
  all versions, subset b: 0 pods
  version versionIgnored, subset a: 1 pod of 1, 0 missing
  version versionIgnored, subset b: 0 pods
  pod p: deletion cost 200, was "": subset a is 1 of 2`},
		"WS-197 a CloneSet with versions, one pod updated in place": {Snapshot{Spread: lists(ab(),
			map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{"1": {workloadspreadtest.Counted("a", 2, 0, nil, nil),
				workloadspreadtest.Counted("b", 0, -1, nil, nil)}}),
			Versioned: ParseVersioned("cloneset"),
			Target:    &Target{Reference: Reference{workloadkind.CloneSet, "web"}, Exists: true, Desired: 2, Costs: true, Latest: "2"},
			Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("a"),
				controlledBy("CloneSet", map[string]string{pub.ControllerRevisionHash: "web-1"})),
				workloadspreadtest.Pod("q", workloadspreadtest.In("a"),
					controlledBy("CloneSet", map[string]string{pub.ControllerRevisionHash: "web-2"}))}},
			`WorkloadSpread default/ws: CloneSet web wants 2, has 2, 2 ranked
  all versions, subset a: 2 pods of 1, 0 missing
  all versions, subset b: 0 pods
  version 1, subset a: 1 pod of 1, 0 missing
  version 1, subset b: 0 pods
  version 2, subset a: 1 pod of 1, 0 missing
  version 2, subset b: 0 pods
  pod p: deletion cost 100, was "": subset a is 2 of 2, in mirrored order since 1 is not the latest version
  pod q: deletion cost 200, was "": subset a is 1 of 2`},
		"WS-155 versions without pods": {Snapshot{Spread: lists(ab(), map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{
			"creating": {workloadspreadtest.Counted("a", 0, 0, workloadspreadtest.Times{"x": workloadspreadtest.At(-10)}, nil)},
			"forgotten": {workloadspreadtest.Counted("a", 3, 0, nil,
				workloadspreadtest.Times{"y": workloadspreadtest.At(0)})},
			"late": {workloadspreadtest.Counted("a", 0, 0, workloadspreadtest.Times{"z": workloadspreadtest.At(-31)}, nil)}}),
			Target: webTarget(2)},
			`WorkloadSpread default/ws: Deployment web wants 2, has 0
  all versions, subset a: 0 pods of 1, 1 missing
  all versions, subset b: 0 pods
  version creating, subset a: 0 pods of 1, 0 missing, 1 coming
  version creating, subset b: 0 pods
  pod z of subset a was not seen within 30s of its admission
  again at 00:00:20.001: a booking expires`},
		"WS-122 WS-171 WS-173 WS-175 pods that wait for a node": {Snapshot{Spread: workloadspreadtest.Adaptive(ab(), 60), Target: webTarget(4),
			Pods: []*corev1.Pod{
				workloadspreadtest.Pod("stuck", workloadspreadtest.In("a"), workloadspreadtest.Unschedulable, workloadspreadtest.Born(-61)),
				workloadspreadtest.Pod("former", workloadspreadtest.In("a"), workloadspreadtest.Unschedulable, workloadspreadtest.Born(-300),
					workloadspreadtest.Version("v0")), workloadspreadtest.Pod("waits", workloadspreadtest.In("a"), workloadspreadtest.Unschedulable,
					workloadspreadtest.Born(-50)), workloadspreadtest.Pod("last", workloadspreadtest.In("b"), workloadspreadtest.Unschedulable,
					workloadspreadtest.Born(-300)),
				workloadspreadtest.Pod("nowhere", workloadspreadtest.Unschedulable, workloadspreadtest.Born(-300))}},
			`WorkloadSpread default/ws: Deployment web wants 4, has 5, 3 ranked, 2 given up
  all versions, subset a: 3 pods of 1, 0 missing, passed over (PodUnschedulable since 00:00:00)
  all versions, subset b: 1 pod
  version v0, subset a: 1 pod of 1, 0 missing, passed over (PodUnschedulable since 00:00:00)
  version v0, subset b: 0 pods
  version v1, subset a: 2 pods of 1, 0 missing, passed over (PodUnschedulable since 00:00:00)
  version v1, subset b: 1 pod
  pod nowhere: in no subset, it has no node
  pod former: deleted, because it could not be scheduled in subset a for 1m0s
  pod stuck: deleted, because it could not be scheduled in subset a for 1m0s
  pod last: deletion cost 100, was "": subset b is 2 of 2
  pod nowhere: deletion cost -300, was "": it is in no subset
  pod waits: deletion cost -100, was "": more than the 1 of subset a
  again at 00:00:10.001: pod waits will have waited long enough for a node`},
		"WS-170 not adaptive": {Snapshot{Spread: ab(), Target: target(func(t *Target) { t.Costs = false }),
			Pods: []*corev1.Pod{workloadspreadtest.Pod("stuck", workloadspreadtest.In("a"), workloadspreadtest.Unschedulable,
				workloadspreadtest.Born(-300))}},
			`WorkloadSpread default/ws: Deployment web wants 2, has 1
  all versions, subset a: 1 pod of 1, 0 missing
  all versions, subset b: 0 pods
  version v1, subset a: 1 pod of 1, 0 missing
  version v1, subset b: 0 pods`},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.snapshot
			s.Now, s.Window = workloadspreadtest.Clock, UnschedulableWindow
			if s.Versioned == nil {
				s.Versioned = versions
			}
			if diff := cmp.Diff(strings.TrimSpace(test.want), strings.TrimSpace(Make(s).String())); diff != "" {
				t.Errorf("strings.TrimSpace(Make(s).String()) (-want +got):\n%s", diff)
			}
		})
	}
}

// WS-150, WS-156, WS-170, WS-176, WS-177: what a status is made of, beside the numbers.
func TestTheStatusHasConditionsAndBookings(t *testing.T) {
	spread := workloadspreadtest.Spread(workloadspreadtest.Subset("a", 2), workloadspreadtest.Subset("b", nil))
	spread.Generation = 7
	old := workloadspreadtest.Counted("a", 1, 1, nil, nil)
	old.Conditions = []metav1.Condition{{Type: "Schedulable", Status: "False", Reason: ReasonUnschedulable,
		LastTransitionTime: workloadspreadtest.At(-300)},
		{Type: "Theirs"}}
	spread.Status = appsv1beta1.WorkloadSpreadStatus{SubsetStatuses: []appsv1beta1.WorkloadSpreadSubsetStatus{old},
		VersionedSubsetStatuses: map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{"v1": {old}}}
	snapshot := Snapshot{Spread: spread, Target: webTarget(3), Pods: []*corev1.Pod{workloadspreadtest.Pod("p", workloadspreadtest.In("a"))},
		Versioned: versions,
		Window:    UnschedulableWindow, Now: workloadspreadtest.Clock}

	plan := Make(snapshot)
	without := []appsv1beta1.WorkloadSpreadSubsetStatus{workloadspreadtest.Counted("a", 1, 1, nil, nil),
		workloadspreadtest.Counted("b", 0, -1, nil, nil)}
	without[0].Conditions = []metav1.Condition{{Type: "Theirs"}}
	want := appsv1beta1.WorkloadSpreadStatus{ObservedGeneration: 7, SubsetStatuses: without,
		VersionedSubsetStatuses: map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{"v1": without}}
	if diff := cmp.Diff(want, plan.Status.Status); diff != "" {
		t.Errorf("not adaptive: %s", diff)
	}

	workloadspreadtest.Adaptive(spread, 60)
	plan = Make(snapshot)
	good := metav1.Condition{Type: "Schedulable", Status: "True", Reason: ReasonSufficient, LastTransitionTime: workloadspreadtest.At(0)}
	for i, conditions := range [][]metav1.Condition{{{Type: "Theirs"}, good}, {good}} {
		for of, list := range map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{"all": plan.Status.Status.SubsetStatuses,
			"v1": plan.Status.Status.VersionedSubsetStatuses["v1"]} {
			if diff := cmp.Diff(conditions, list[i].Conditions); diff != "" {
				t.Errorf("adaptive, %s: %s", of, diff)
			}
		}
	}
	if diff := cmp.Diff([]string{"a"}, plan.Status.Recovered); diff != "" {
		t.Errorf("plan.Status.Recovered (-want +got):\n%s", diff)
	}
	if !plan.Again.IsZero() {
		t.Error("there is nothing to look at again", plan.Again, plan.Because)
	}
	// WS-204: the end of the window is an exact time.
	spread.Status.SubsetStatuses[0].Conditions[0].LastTransitionTime = workloadspreadtest.At(-299)
	if plan = Make(snapshot); !plan.Again.Equal(workloadspreadtest.Clock.Add(time.Second)) {
		t.Errorf("again: got %v, want %v\n%q", plan.Again, workloadspreadtest.Clock.Add(time.Second), plan.Because)
	}
	if len(spread.Status.SubsetStatuses[0].Conditions) != 2 {
		t.Errorf("the cache's object was changed: len(spread.Status.SubsetStatuses[0].Conditions): got %d, want 2",
			len(spread.Status.SubsetStatuses[0].Conditions))
	} else if spread.Status.SubsetStatuses[0].Conditions[0].Status != "False" {
		t.Errorf("the cache's object was changed: spread.Status.SubsetStatuses[0].Conditions[0].Status: got %q, want %q",
			spread.Status.SubsetStatuses[0].Conditions[0].Status, "False")
	}
}

// WS-178: the patch has what changed, guarded by uid and resourceVersion; there is none if nothing did.
func TestTheStatusPatchHasOnlyWhatChanged(t *testing.T) {
	spread := workloadspreadtest.Spread()
	spread.Status = appsv1beta1.WorkloadSpreadStatus{ObservedGeneration: 1,
		SubsetStatuses: []appsv1beta1.WorkloadSpreadSubsetStatus{workloadspreadtest.Counted("a", 1, 0, nil, nil)},
		VersionedSubsetStatuses: map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{"v1": {workloadspreadtest.Counted("a", 1, 0, nil, nil)},
			"v2": {workloadspreadtest.Counted("a", 0, 1, nil, nil)}}}
	same := spread.Status.DeepCopy()
	same.SubsetStatuses[0].CreatingPods = workloadspreadtest.Times{}
	if body, err := reconcile.StatusPatch(spread, &spread.Status, same); body != nil {
		t.Errorf("reconcile.StatusPatch(spread, &spread.Status, same): got %s, want nil\n%v", body, err)
	} else if err != nil {
		t.Errorf("unexpected error: %v\n%s", err, body)
	}
	next := spread.Status.DeepCopy()
	delete(next.VersionedSubsetStatuses, "v2")
	next.VersionedSubsetStatuses["v1"][0].Replicas = 0
	body, err := reconcile.StatusPatch(spread, &spread.Status, next)
	want := `{"metadata":{"resourceVersion":"1","uid":"uid-ws"},"status":{"versionedSubsetStatuses":{"v1":[{"missingReplicas":0,"name":"a","replicas":0}],"v2":null}}}`
	if diff := cmp.Diff(want, string(body)); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if err != nil {
		t.Errorf("unexpected error: %v", err)
	}
}

// webTarget is Deployment web with that many replicas.
func webTarget(desired int32) *Target {
	return &Target{Reference: Reference{workloadkind.Deployment, "web"}, Exists: true, Desired: desired, Costs: true, Latest: "v1",
		Controllers: []types.UID{"uid-web-v1"}}
}

var versions = ParseVersioned("deployment")
