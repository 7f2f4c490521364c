package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// TestScalingThatTheCacheShowsLate: a workload was scaled, and its pods come before the cache shows that.
// They fill the share of the new number, and not that of the old one (WS-012). Where the API server does not
// answer, what the cache has is better than nothing.
func TestScalingThatTheCacheShowsLate(t *testing.T) {
	const shares = `{metadata: {name: ws, namespace: d, uid: u1, generation: 1}, spec: {targetRef: {apiVersion: apps/v1, kind: %s, name: web-5}, subsets: [{name: a, maxReplicas: 30%%}, {name: b%s}]},
		status: {observedGeneration: 1, versionedSubsetStatuses: {v: [{name: a, replicas: %d, missingReplicas: 0}, {name: b, replicas: 0, missingReplicas: -1}]}}}`
	for name, test := range map[string]struct {
		kind, most  string
		here        int
		cached, now int32
		refused     error
		want        string
	}{
		"out":                              {"ReplicaSet", "", 3, 10, 20, nil, "a"},
		"in":                               {"ReplicaSet", "", 3, 20, 10, nil, "b"},
		"from none":                        {"ReplicaSet", "", 0, 0, 10, nil, "a"},
		"out, and all was full":            {"ReplicaSet", ", maxReplicas: 0%", 3, 10, 20, nil, "a"},
		"the API server does not answer":   {"ReplicaSet", "", 3, 20, 10, errors.New("no answer"), "a"},
		"the fifth of a StatefulSet":       {"StatefulSet", "", 0, 10, 20, nil, "a"},
		"the fifth of one that is smaller": {"StatefulSet", "", 0, 20, 10, nil, "b"},
		"the fifth, without an answer":     {"StatefulSet", "", 0, 10, 20, errors.New("no answer"), "b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBookServer(t, workloadspreadtest.Read(t, fmt.Sprintf(shares, test.kind, test.most, test.here)))
			b, spread := s.behind(t, &standing{target: func(live bool) (*workloadspread.Target, error) {
				if live {
					return &workloadspread.Target{Exists: true, Desired: test.now}, test.refused
				}
				return &workloadspread.Target{Exists: true, Desired: test.cached}, nil
			}})
			d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "web-5", Version: "v"}, prepared)
			if err != nil {
				t.Errorf("unexpected error: %v\n%+v", err, d)
			} else if d.Subset == nil {
				t.Errorf("subset: got nil, want a value\n%+v\n%v", d, err)
			} else if d.Subset.Name != test.want {
				t.Errorf("name of the subset: got %q, want %q\n%+v\n%v", d.Subset.Name, test.want, d, err)
			}
		})
	}
}

// WS-061: the first ordinal of a StatefulSet, and those that it leaves out, are what they are now.
func TestOrdinalsThatTheCacheShowsLate(t *testing.T) {
	const ordered = `{metadata: {name: ws, namespace: d, uid: u1}, spec: {targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: s}, subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 2}]}}`
	for name, test := range map[string]struct {
		cached, now workloadspread.Target
		want        string
	}{
		"it is not cached": {workloadspread.Target{}, workloadspread.Target{Exists: true, Start: 2}, "a"},
		"another start":    {workloadspread.Target{Exists: true}, workloadspread.Target{Exists: true, Start: 2}, "a"},
		"one is reserved": {workloadspread.Target{Exists: true},
			workloadspread.Target{Exists: true, Reserved: []workloadspread.Ordinals{{First: 0, Last: 0}}}, "a"},
		"there really is no place": {workloadspread.Target{Exists: true}, workloadspread.Target{Exists: true, Start: -10}, ""},
		"nor is it there":          {workloadspread.Target{}, workloadspread.Target{}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBookServer(t, workloadspreadtest.Read(t, ordered))
			b, spread := s.behind(t, &standing{target: func(live bool) (*workloadspread.Target, error) {
				return map[bool]*workloadspread.Target{false: &test.cached, true: &test.now}[live], nil
			}})
			d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "s-2", Version: "v"}, prepared)
			got := ""
			if d.Subset != nil {
				got = d.Subset.Name
			}
			if err != nil {
				t.Errorf("unexpected error: %v\n%s", err, got)
			} else if got != test.want {
				t.Errorf("got %q, want %q\n%v", got, test.want, err)
			}
		})
	}
}

// TestWhatIsReadForEachPod: of a workload no more is read live than decides about new pods: a namespace may
// have thousands of ReplicaSets.
func TestWhatIsReadForEachPod(t *testing.T) {
	game := workloadspread.AllowList{Workloads: []workloadspread.CustomKind{{GroupVersionKind: gameKind, ReplicasPath: "spec.size",
		SubResources: []schema.GroupVersionKind{{Group: "apps", Kind: "ReplicaSet"}}}}}
	for name, test := range map[string]struct{ document, ref string }{
		"Deployment": {`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3}}`,
			`{apiVersion: apps/v1, kind: Deployment, name: web}`},
		"listed kind": {`{apiVersion: game.example.com/v1, kind: Game, spec: {size: 3}}`,
			`{apiVersion: game.example.com/v1, kind: Game, name: web}`},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := kindsOf(t, game, "", test.document)
			kinds.live = noLists{kinds.live}
			target, err := kinds.Target(t.Context(), spreadFrom(t, `{targetRef: `+test.ref+`, subsets: [{name: a, maxReplicas: 50%}]}`),
				true)
			if err != nil {
				t.Errorf("unexpected error: %v\n%+v", err, target)
			} else if target.Desired != 3 {
				t.Errorf("desired: got %d, want 3\n%+v\n%v", target.Desired, target, err)
			}
		})
	}
}

// noLists is a reader that must not be asked for lists.
type noLists struct{ client.Reader }

func (noLists) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("a list is read")
}

// WS-111, WS-130: that a subset is closed counts from when it was written here, not from when the informer
// shows it, for pods too that are not booked.
func TestBookerKnowsWhatItsControllerClosed(t *testing.T) {
	const ordered = `{metadata: {name: ws, namespace: d, uid: u1}, spec: {targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: s}, subsets: [{name: a, maxReplicas: 2}, {name: b, maxReplicas: 2}]}}`
	s := newBookServer(t, workloadspreadtest.Read(t, ordered))
	b, spread := s.behind(t, &standing{target: func(bool) (*workloadspread.Target, error) {
		return &workloadspread.Target{Exists: true},
			nil
	}})
	if _, err := b.WriteStatus(t.Context(), spread, func(newest *appsv1beta1.WorkloadSpread) ([]byte, error) {
		closed := newest.DeepCopy()
		closed.Status.SubsetStatuses = []appsv1beta1.WorkloadSpreadSubsetStatus{{Name: "a",
			Conditions: []metav1.Condition{{Type: "Schedulable", Status: "False", Reason: workloadspread.ReasonUnschedulable,
				LastTransitionTime: metav1.Now()}}}}
		return reconcile.StatusPatch(newest, &newest.Status, &closed.Status)
	}); err != nil {
		t.Fatal(err)
	}
	if d, err := b.Create(t.Context(), spread, workloadspread.Creation{Key: "s-0", Version: "v"}, prepared); err != nil {
		t.Errorf("unexpected error: %v\n%+v", err, d)
	} else if d.Subset == nil {
		t.Errorf("subset: got nil, want a value\n%+v\n%v", d, err)
	} else if d.Subset.Name != "b" {
		t.Errorf("name of the subset: got %q, want %q\n%+v\n%v", d.Subset.Name, "b", d, err)
	}
}

// WS-020: the pods of a listed kind are those below what stands between, whatever its scale says, which may
// not exist.
func TestPodsBelowAListedKind(t *testing.T) {
	game := workloadspread.AllowList{Workloads: []workloadspread.CustomKind{{GroupVersionKind: gameKind, ReplicasPath: "spec.size",
		SubResources: []schema.GroupVersionKind{{Group: "apps", Kind: "ReplicaSet"}, {Group: "x", Kind: "NotServed"}}}}}
	const document = `{apiVersion: game.example.com/v1, kind: Game, spec: {size: 3}}`
	set := func(name, owner string) string {
		return `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: ` + name + `, uid: uid-` + name +
			`, ownerReferences: [{apiVersion: game.example.com/v1, kind: Game, name: x, uid: ` + owner + `, controller: true}]}}`
	}
	kinds := kindsOf(t, game, "", document, set("web-1", "web-uid"), set("web-2", "web-uid"), set("other", "other-uid"),
		set("below", "uid-web-1"))
	target, err := kinds.Target(t.Context(), spreadFrom(t,
		`{targetRef: {apiVersion: game.example.com/v1, kind: Game, name: web}, subsets: [{name: a}]}`), false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, uid := range target.Controllers {
		got = append(got, string(uid))
	}
	if diff := cmp.Diff([]string{"web-uid", "uid-web-1", "uid-web-2", "uid-below"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAKindThatIsListedInTwoVersions: the kind between a workload and its pods is listed in two versions. Its
// pods count once (WS-020, WS-025).
func TestAKindThatIsListedInTwoVersions(t *testing.T) {
	game := workloadspread.AllowList{Workloads: []workloadspread.CustomKind{{GroupVersionKind: gameKind, ReplicasPath: "spec.size",
		SubResources: []schema.GroupVersionKind{{Group: "apps", Version: "v1beta1", Kind: "ReplicaSet"},
			{Group: "apps", Version: "v1", Kind: "ReplicaSet"}}}}}
	kinds := kindsOf(t, game, "", `{apiVersion: game.example.com/v1, kind: Game, spec: {size: 3}}`,
		`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, uid: uid-1, ownerReferences: [{apiVersion: game.example.com/v1, kind: Game, name: web, uid: web-uid, controller: true}]}}`)
	target, err := kinds.Target(t.Context(), spreadFrom(t,
		`{targetRef: {apiVersion: game.example.com/v1, kind: Game, name: web}, subsets: [{name: a}]}`), false)
	if diff := cmp.Diff([]types.UID{"web-uid", "uid-1"}, target.Controllers); err != nil {
		t.Errorf("unexpected error: %v", err)
	} else if diff != "" {
		t.Errorf("controllers of the target (-want +got):\n%s\n%v", diff, err)
	}
}

// WS-020: a kind without scale has no other pods than those that are controlled.
func TestKindsWithoutScale(t *testing.T) {
	game := workloadspread.AllowList{Workloads: []workloadspread.CustomKind{{GroupVersionKind: gameKind, ReplicasPath: "spec.size"}}}
	kinds := kindsOf(t, game, "", `{apiVersion: game.example.com/v1, kind: Game, spec: {size: 3}}`)
	kinds.scales = noScale{}
	target, err := kinds.Target(t.Context(), spreadFrom(t,
		`{targetRef: {apiVersion: game.example.com/v1, kind: Game, name: web}, subsets: [{name: a}]}`), false)
	if err != nil {
		t.Fatal(err)
	}
	if selector, err := target.Fallback(); selector != nil {
		t.Errorf("fallback of the target: got %v, want nil\n%v", selector, err)
	} else if err != nil {
		t.Errorf("unexpected error: %v\n%v", err, selector)
	}
}

// WS-025: a listed version that is not served any more does not make workloads disappear.
func TestListedVersionThatIsGone(t *testing.T) {
	former := gameKind
	former.Version = "v0"
	kinds := kindsOf(t, workloadspread.AllowList{Workloads: []workloadspread.CustomKind{{GroupVersionKind: former,
		ReplicasPath: "spec.size"}}}, "",
		`{apiVersion: game.example.com/v1, kind: Game, spec: {size: 3}}`)
	target, err := kinds.Target(t.Context(), spreadFrom(t,
		`{targetRef: {apiVersion: game.example.com/v0, kind: Game, name: web}, subsets: [{name: a}]}`), false)
	if err != nil {
		t.Errorf("unexpected error: %v\n%+v", err, target)
	} else if !target.Exists {
		t.Errorf("exists of the target: got false, want true\n%+v\n%v", target, err)
	} else if target.Desired != 3 {
		t.Errorf("desired: got %d, want 3\n%+v\n%v", target.Desired, target, err)
	}
}

// WS-028: a scale that may not be read is told of, and does not fail in silence for ever.
func TestForbiddenScaleIsTold(t *testing.T) {
	s := simulate(1, workloadspreadtest.Spread(), 1)
	s.pass.Reader = forbiddenPods{s.reader}
	outcome, err := s.run()
	if err == nil {
		t.Errorf("error: got nil, want an error\n%v", outcome.Plan)
	} else if outcome.Plan == nil {
		t.Errorf("plan: got nil, want a value\n%v", err)
	} else if outcome.Plan.Reason != workloadspread.ReasonReplicasUnknown {
		t.Errorf("reason of the plan: got %q, want %q\n%v\n%v", outcome.Plan.Reason,
			workloadspread.ReasonReplicasUnknown, outcome.Plan,
			err)
	} else if !strings.Contains(err.Error(), "no rights") {
		t.Errorf("error: got %q, want it to contain %q\n%v", err.Error(), "no rights", outcome.Plan)
	}
	for range 20 { // in vain
		s.Queue.Add()
		s.Manage()
	}
	if late := s.Queue.Due().Sub(s.Now()); late > unknownAfter {
		t.Errorf("once the right is given, that is seen after %s", late)
	}
}

// forbiddenPods finds no pods without rights.
type forbiddenPods struct{ simReader }

func (forbiddenPods) Pods(context.Context, *appsv1beta1.WorkloadSpread, *workloadspread.Target) ([]*corev1.Pod, error) {
	return nil, fmt.Errorf("finding pods: %w",
		apierrors.NewForbidden(schema.GroupResource{Resource: "games/scale"}, "web", errors.New("no rights")))
}

// noScale is an API server whose kinds have no scale.
type noScale struct{}

func (noScale) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "games"}, "web")
}
