package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/cel-go/cel"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

func ref(group, kind, name string) workloadspread.Reference {
	return workloadspread.Reference{GroupKind: schema.GroupKind{Group: group, Kind: kind}, Name: name}
}

// spreading is a WorkloadSpread of namespace d for a target.
func spreading(t testing.TB, name, apiVersion, kind, target, more string) *appsv1beta1.WorkloadSpread {
	t.Helper()
	spread := workloadspreadtest.Read(t, fmt.Sprintf(`{metadata: {name: %s, namespace: d, uid: u-%s}, spec: {targetRef: {apiVersion: %s, kind: %s, name: %s}, subsets: [{name: a}], targetFilter: {%s}}}`,
		name, name, apiVersion, kind, target, more))
	return spread
}

func owned(t testing.TB, apiVersion, kind, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(fmt.Sprintf(`{metadata: {name: p, labels: {role: worker}, ownerReferences: [{apiVersion: x/v1, kind: Other, name: o}, {apiVersion: %s, kind: %s, name: %s, controller: true}]}}`,
		apiVersion, kind, name)), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestMatch(t *testing.T) {
	going := spreading(t, "going", "apps/v1", "ReplicaSet", "r", "")
	going.DeletionTimestamp = new(metav1.Now())
	ended := owned(t, "apps/v1", "ReplicaSet", "r")
	ended.Status.Phase = corev1.PodFailed
	orphan := owned(t, "apps/v1", "ReplicaSet", "r")
	orphan.OwnerReferences[1].Controller = nil
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "replicasets"}, "r")
	ofDeployment := map[workloadspread.Reference]workloadspread.Reference{ref("apps", "ReplicaSet", "r"): ref("apps", "Deployment", "d")}
	for name, test := range map[string]struct {
		spreads []*appsv1beta1.WorkloadSpread
		pod     *corev1.Pod
		parents map[workloadspread.Reference]workloadspread.Reference
		failing error
		want    string
		asked   []string
	}{
		"WS-055: no WorkloadSpread": {nil, owned(t, "apps/v1", "ReplicaSet", "r"), nil, notFound, "", nil},
		"WS-052, WS-055: the controller itself": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "ReplicaSet", "r", "")},
			owned(t, "apps/v1", "ReplicaSet", "r"), nil, notFound, "ws", nil},
		"WS-013: whatever the version": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1beta2", "ReplicaSet", "r",
			"")}, owned(t, "apps/v1", "ReplicaSet", "r"), nil, nil, "ws", nil},
		"WS-013: but not another group": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "StatefulSet", "s", "")},
			owned(t, "apps.kruise.io/v1", "StatefulSet", "s"), nil, nil, "", nil},
		"WS-052: the controller of it": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "Deployment", "d", "")},
			owned(t, "apps/v1", "ReplicaSet", "r"), ofDeployment, nil, "ws", []string{"parent of ReplicaSet r"}},
		"WS-053: a missing owner refuses": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "Deployment", "d", "")},
			owned(t, "apps/v1", "ReplicaSet", "r"), nil, notFound, "error", []string{"parent of ReplicaSet r"}},
		"WS-053: another error does not": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "Deployment", "d", "")},
			owned(t, "apps/v1", "ReplicaSet", "r"), nil, errors.New("no rights"), "", []string{"parent of ReplicaSet r"}},
		"WS-055: nobody above can be a target": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "Deployment", "d", "")},
			owned(t, "apps.kruise.io/v1", "CloneSet", "c"), nil, notFound, "", nil},
		"WS-055: nor of pods the filter excludes": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "Deployment", "d",
			"selector: {matchLabels: {role: driver}}")}, owned(t, "apps/v1", "ReplicaSet", "r"), nil, notFound, "", nil},
		"WS-051: no controller": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "ReplicaSet", "r", "")},
			orphan, nil, nil, "", nil},
		"WS-051: not active": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "ReplicaSet", "r", "")},
			ended, nil, nil, "", nil},
		"WS-051: of a kind that nobody knows": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "other.io/v1", "Job", "j", "")},
			owned(t, "other.io/v1", "Job", "j"), nil, nil, "", nil},
		"WS-052: a listed kind above listed ones": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "known.io/v1", "Top", "t", "")},
			owned(t, "apps/v1", "ReplicaSet", "r"),
			map[workloadspread.Reference]workloadspread.Reference{ref("apps", "ReplicaSet", "r"): ref("known.io", "Middle", "m"),
				ref("known.io", "Middle",
					"m"): ref("known.io", "Top", "t")}, nil, "ws",
			[]string{"parent of ReplicaSet r", "parent of Middle m"}},
		"WS-052: a chain that leads nowhere": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "known.io/v1", "Top", "t", "")},
			owned(t, "apps/v1", "ReplicaSet", "r"), nil, nil, "", []string{"parent of ReplicaSet r"}},
		"WS-052: one that is terminating": {[]*appsv1beta1.WorkloadSpread{going}, owned(t, "apps/v1", "ReplicaSet", "r"), nil, nil, "",
			nil},
		"WS-054: the first whose filter fits": {[]*appsv1beta1.WorkloadSpread{spreading(t, "c", "apps/v1", "ReplicaSet", "r", ""),
			spreading(t, "b", "apps/v1", "ReplicaSet", "r", "selector: {matchLabels: {role: worker}}"),
			spreading(t, "a", "apps/v1", "ReplicaSet", "r",
				"selector: {matchLabels: {role: driver}}")}, owned(t, "apps/v1", "ReplicaSet", "r"), nil, nil, "b", nil},
		"WS-014: empty filters select all": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "ReplicaSet", "r",
			"selector: {}, replicasPathList: [x]")}, owned(t, "apps/v1", "ReplicaSet", "r"), nil, nil, "ws", nil},
		"a filter that cannot be read is none": {[]*appsv1beta1.WorkloadSpread{spreading(t, "ws", "apps/v1", "ReplicaSet", "r",
			"selector: {matchExpressions: [{key: a, operator: Nonsense}]}")}, owned(t, "apps/v1", "ReplicaSet", "r"), nil, nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			index := &Index{}
			for _, spread := range test.spreads {
				index.Set(spread)
			}
			workloads := &standing{parents: test.parents, failing: map[workloadspread.Reference]error{ref("apps", "ReplicaSet", "r"): test.failing}}
			spread, err := NewMatcher(index, workloads, logr.Discard()).Match(t.Context(), test.pod, "d")
			got := ""
			switch {
			case err != nil:
				got = "error"
			case spread != nil:
				got = spread.Name
			}
			if got != test.want {
				t.Errorf("found: got %q, want %q: %v", got, test.want, err)
			}
			if diff := cmp.Diff(test.asked, workloads.asked); diff != "" {
				t.Errorf("workloads that were asked for (-want +got):\n%s", diff)
			}
		})
	}
	index := &Index{}
	index.Set(spreading(t, "ws", "known.io/v1", "Top", "t", ""))
	ring := ref("known.io", "Ring", "r")
	if spread, err := NewMatcher(index, &standing{parents: map[workloadspread.Reference]workloadspread.Reference{ring: ring}},
		logr.Discard()).Match(t.Context(),
		owned(t, "known.io/v1", "Ring", "r"), "d"); spread != nil {
		t.Errorf("spread: got %+v, want nil\n%v", spread, err)
	} else if err != nil {
		t.Errorf("unexpected error: %v\n%v", err, spread)
	}
}

// asks evaluates an expression as an API server does, with a tenth of what it grants.
func asks(t testing.TB, expression, namespace string, pod *corev1.Pod) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("request", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	tree, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("compiling %s: %v", expression, issues.Err())
	}
	program, err := env.Program(tree, cel.CostLimit(250000))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	value, _, err := program.Eval(map[string]any{"object": object, "request": map[string]any{"namespace": namespace}})
	if err != nil {
		t.Fatalf("evaluating %s: %v", expression, err)
	}
	return value.Value().(bool)
}

// WS-050, WS-051, WS-055: the API server asks about pods of namespaces that have a WorkloadSpread, whose
// controller leads to a target, and about no others; what is not asked for any more stays for a while.
func TestScope(t *testing.T) {
	now := time.Unix(0, 0)
	index := &Index{}
	scope := NewScope(index, func() time.Time { return now })
	pods := map[string]*corev1.Pod{"ReplicaSet": owned(t, "apps/v1", "ReplicaSet", "r"), "CloneSet": owned(t, "apps.kruise.io/v1beta1",
		"CloneSet", "c"), "custom": owned(t, "known.io/v1", "Top", "t"),
		"Job": owned(t, "batch/v1", "Job", "j"), "none": {}}
	asked := func() map[string]string {
		got := map[string]string{}
		for _, namespace := range []string{"d", "e", "f"} {
			var kinds []string
			for _, kind := range []string{"CloneSet", "Job", "ReplicaSet", "custom", "none"} {
				if asks(t, scope.Creations(), namespace, pods[kind]) {
					kinds = append(kinds, kind)
				}
			}
			if len(kinds) > 0 {
				got[namespace] = strings.Join(kinds, " ")
			}
			if evictions := asks(t, scope.Evictions(), namespace, pods["none"]); evictions != (len(kinds) > 0) {
				t.Errorf("evictions of %s: %t", namespace, evictions)
			}
		}
		return got
	}
	if got := scope.Creations(); got != "false" {
		t.Errorf("scope.Creations(): got %q, want %q", got, "false")
	}
	if got := scope.Evictions(); got != "false" {
		t.Errorf("scope.Evictions(): got %q, want %q", got, "false")
	}
	deployment, custom := spreading(t, "ws", "apps/v1", "Deployment", "d", ""), spreading(t, "ws", "known.io/v1", "Top", "t", "")
	custom.Namespace = "e"
	index.Set(deployment)
	index.Set(custom)
	if diff := cmp.Diff(map[string]string{"d": "ReplicaSet", "e": "CloneSet Job ReplicaSet custom"}, asked()); diff != "" {
		t.Errorf("asked() (-want +got):\n%s", diff)
	}
	both := spreading(t, "too", "batch/v1", "Job", "j", "")
	index.Set(both)
	now = now.Add(time.Hour) // however long it was asked for
	index.Delete(custom)
	_ = scope.Creations()
	now = now.Add(matchconditions.Remembered - 1)
	if diff := cmp.Diff(map[string]string{"d": "Job ReplicaSet", "e": "CloneSet Job ReplicaSet custom"}, asked()); diff != "" {
		t.Errorf("asked() (-want +got):\n%s", diff)
	}
	now = now.Add(1)
	if diff := cmp.Diff(map[string]string{"d": "Job ReplicaSet"}, asked()); diff != "" {
		t.Errorf("asked() (-want +got):\n%s", diff)
	}
	for i := range 3000 { // more namespaces than an expression may name
		many := deployment.DeepCopy()
		many.Namespace = fmt.Sprintf("namespace-%d", i)
		index.Set(many)
	}
	if creations := scope.Creations(); len(creations) > matchconditions.MaxLength {
		t.Errorf("len(creations): got %d, want at most %d\n%s", len(creations), matchconditions.MaxLength, creations)
	} else if !asks(t, creations, "namespace-7",
		pods["ReplicaSet"]) {
		t.Errorf("%d: asks(t, creations, \"namespace-7\", pods[\"ReplicaSet\"]): got false, want true\n%s", len(creations), creations)
	} else if asks(t, creations, "d", pods["none"]) {
		t.Errorf("%d: asks(t, creations, \"d\", pods[\"none\"]): got true, want false\n%s", len(creations), creations)
	} else if got := scope.Evictions(); got != "true" {
		t.Errorf("%d: scope.Evictions(): got %q, want %q\n%s", len(creations), got, "true", creations)
	}
}

// WS-026: a kind that is listed after the WorkloadSpread was seen, as after each start, is followed then;
// others are not touched.
func TestKindsAreFollowedWhenTheyAreListed(t *testing.T) {
	l, workloads, index := &Listed{log: logr.Discard()}, &standing{}, &Index{}
	w := newWatch(nil, index, NewBooker(nil, nil, index.Get, workloads, logr.Discard(), time.Now), NewMatcher(index, workloads, logr.Discard()),
		func(spread *appsv1beta1.WorkloadSpread) {
			if workloadspread.BuiltIn(workloadspread.TargetOf(spread).GroupKind) || l.Kinds().Known(workloadspread.TargetOf(spread).GroupKind) {
				_ = workloads.Follow(t.Context(), workloadspread.TargetOf(spread))
			}
		})
	l.WhenRead(w.FollowListed)
	w.OnAdd(spreading(t, "custom", "game.example.com/v1", "Game", "g", ""), true)
	w.OnAdd(spreading(t, "web", "apps/v1", "ReplicaSet", "r", ""), true)
	l.set(`{"workloads":[{"Group":"game.example.com","Kind":"Game"}]}`)
	if diff := cmp.Diff([]string{"follow ReplicaSet", "follow Game"}, workloads.asked); diff != "" {
		t.Errorf("workloads.asked (-want +got):\n%s", diff)
	}
}

// WS-055, WS-110, WS-115: events change what is known, follow the kinds of targets once for each spec, and
// drop what bookings remember.
func TestWatchFollowsWorkloadSpreads(t *testing.T) {
	index, workloads := &Index{}, &standing{}
	written := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(_ context.Context, _ client.Client,
		_ string, spread client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
		spread.SetResourceVersion("1000")
		return nil
	}}).Build()
	booker := NewBooker(written, nil, index.Get, workloads, logr.Discard(), time.Now)
	write := func(spread *appsv1beta1.WorkloadSpread) {
		_, err := booker.WriteStatus(t.Context(), spread, func(*appsv1beta1.WorkloadSpread) ([]byte, error) { return []byte("{}"), nil })
		if err != nil {
			t.Errorf("writing the status: %v", err)
		}
		if got := booker.Newest(spread).ResourceVersion; got != "1000" {
			t.Errorf("what is written is not remembered: got version %s, want 1000", got)
		}
	}
	w := newWatch(nil, index, booker, NewMatcher(index, workloads, logr.Discard()),
		func(spread *appsv1beta1.WorkloadSpread) {
			_ = workloads.Follow(t.Context(), workloadspread.TargetOf(spread))
		})
	gone := []string{}
	w.WhenGone(func(spread *appsv1beta1.WorkloadSpread) { gone = append(gone, string(spread.UID)) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Match(ctx, owned(t, "apps/v1", "ReplicaSet", "r"), "d"); err == nil {
		t.Error("a pod that comes before the WorkloadSpreads are known would do without")
	}
	w.Absent()
	told := func() bool {
		select {
		case <-w.Changed():
			return true
		default:
			return false
		}
	}
	first := spreading(t, "ws", "apps/v1", "ReplicaSet", "r", "")
	first.Generation, first.ResourceVersion = 1, "1"
	counted := first.DeepCopy()
	counted.ResourceVersion = "2"
	other := first.DeepCopy()
	other.UID, other.ResourceVersion = "other", "3"
	other.Spec.TargetReference.APIVersion, other.Spec.TargetReference.Kind = "apps.kruise.io/v1beta1", "CloneSet"
	for _, step := range []struct {
		name        string
		do          func()
		told, match bool
		followed    int
	}{
		{"created", func() { w.OnAdd(first, true) }, true, true, 1},
		{"its status changes", func() { w.OnUpdate(first, counted) }, false, true, 1},
		{"made again, unseen", func() { write(first); w.OnUpdate(counted, other) }, true, false, 2},
		{"deleted", func() { write(other); w.OnDelete(other) }, true, false, 2},
	} {
		step.do()
		found, err := w.Match(t.Context(), owned(t, "apps/v1", "ReplicaSet", "r"), "d")
		if got := told(); got != step.told {
			t.Errorf("%s: told(): got %t, want %t\n%v\n%v\n%v", step.name, got, step.told, found, err, workloads.asked)
		} else if (found != nil) != step.match {
			t.Errorf("%s: found != nil: got %t, want %t\n%v\n%v\n%v", step.name, found != nil, step.match, found, err, workloads.asked)
		} else if err != nil {
			t.Errorf("%s: unexpected error: %v\n%v\n%v", step.name, err, found, workloads.asked)
		} else if len(workloads.asked) != step.followed {
			t.Errorf("%s: len(workloads.asked): got %d, want %d\n%v\n%v\n%v", step.name, len(workloads.asked), step.followed, found, err,
				workloads.asked)
		}
		if step.name == "its status changes" && index.Get(types.NamespacedName{Namespace: "d", Name: "ws"}).ResourceVersion != "2" {
			t.Error("the status is not known")
		}
	}
	if got := booker.Newest(first); got != first {
		t.Errorf("booker.Newest(first): got %+v, want %+v\n%v", got, first, index.namespaces)
	}
	if got := booker.Newest(other); got != other {
		t.Errorf("booker.Newest(other): got %+v, want %+v\n%v", got, other, index.namespaces)
	}
	if !cmp.Equal(gone, []string{"other"}) {
		t.Errorf("gone: got %q, want %q\n%v", gone, []string{"other"}, index.namespaces)
	}
	if len(index.namespaces) != 0 {
		t.Errorf("len(index.namespaces): got %d, want 0\n%v", len(index.namespaces), index.namespaces)
	}
}
