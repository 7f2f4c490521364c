package statefulset

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
)

// unfinished is a pod whose last update in place is not complete, though it is ready: the container runs with
// the former image.
func unfinished(pod *corev1.Pod) {
	delete(pod.Labels, pub.LifecycleState) // as a pod that was adopted, and has no readiness gate
	pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"x","updateTimestamp":"2026-01-02T03:04:00Z",` +
		`"lastContainerStatuses":{"main":{"imageID":"sha256:old"}}}`}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "a:0", ImageID: "sha256:old", Ready: true}}
}

// sized gives the PVC of an ordinal what it asks for and what it has.
func (w *world) sized(ordinal int, asked, has string) {
	claim := w.claim(ordinal)
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(asked)}
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(has)}
}

// TestMaxUnavailableBoundsHowManyPodsAreDown shows ASTS-155: how many pods of five may be down.
func TestMaxUnavailableBoundsHowManyPodsAreDown(t *testing.T) {
	of := func(value intstr.IntOrString) option {
		return rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) { r.MaxUnavailable = &value })
	}
	bare := func(set *appsv1beta1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate = nil }
	for name, tt := range map[string]struct {
		options []option
		want    int
	}{
		"a number":                 {[]option{inParallel, maxUnavailable(3)}, 3},
		"more than there are":      {[]option{inParallel, maxUnavailable(7)}, 5},
		"zero":                     {[]option{inParallel, maxUnavailable(0)}, 1},
		"a percentage":             {[]option{inParallel, percent("40%")}, 2},
		"rounded down":             {[]option{inParallel, percent("59%")}, 2},
		"never below one":          {[]option{inParallel, percent("19%")}, 1},
		"none":                     {[]option{inParallel}, 1},
		"no rollingUpdate at all":  {[]option{inParallel, bare}, 1},
		"in order, a number":       {[]option{of(intstr.FromInt32(3))}, 1},
		"in order, a percentage":   {[]option{of(intstr.FromString("100%"))}, 1},
		"in order, none":           {nil, 1},
		"of replicas, not of pods": {[]option{inParallel, percent("60%"), replicas(8)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5, tt.options...)
			w.at("a:1")
			w.at("a:2")
			all(w, "a:1", 5)
			if got := len(strings.Fields(w.updates())); got != tt.want {
				t.Errorf("%d are taken, not %d: %s", got, tt.want, Make(w.Snapshot))
			}
		})
	}
}

func replicas(n int32) option {
	return func(set *appsv1beta1.StatefulSet) { set.Spec.Replicas = &n }
}

// TestWhatIsDown shows ASTS-156: one pod may be down, and another is taken only if the one of slot 0 is not.
// It is no candidate itself.
func TestWhatIsDown(t *testing.T) {
	lacking := func(w *world) { w.pod(0, "a:1"); w.sized(0, "2Gi", "1Gi") }
	with := func(states ...state) func(*world) { return func(w *world) { w.pod(0, "a:1", states...) } }
	growing := []option{withClaims, follow}
	for name, tt := range map[string]struct {
		build   func(*world)
		options []option
		down    bool
	}{
		"it serves":                           {with(), nil, false},
		"it has no state":                     {with(func(pod *corev1.Pod) { delete(pod.Labels, pub.LifecycleState) }), nil, false},
		"it is missing":                       {func(*world) {}, nil, true},
		"it goes":                             {with(terminating), nil, true},
		"it is not ready":                     {with(notReady), nil, true},
		"it is pending":                       {with(pending), nil, true},
		"it has failed":                       {with(failed), nil, true},
		"its phase is unknown":                {with(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodUnknown }), nil, true},
		"it prepares to begin":                {with(in(pub.LifecycleStatePreparingNormal)), nil, true},
		"it prepares an update":               {with(in(pub.LifecycleStatePreparingUpdate)), nil, true},
		"it is being updated":                 {with(in(pub.LifecycleStateUpdating)), nil, true},
		"it is updated":                       {with(in(pub.LifecycleStateUpdated)), nil, true},
		"it prepares its deletion":            {with(in(pub.LifecycleStatePreparingDelete)), nil, true},
		"its update in place is not finished": {with(unfinished), nil, true},
		"it is ready for too short a time":    {with(readyFor(30 * time.Second)), []option{minReady(60)}, true},
		"it is ready for long enough":         {with(readyFor(61 * time.Second)), []option{minReady(60)}, false},
		"its PVC is smaller than it asks":     {lacking, growing, true},
		"its PVC has what it asks for":        {func(w *world) { w.pod(0, "a:1"); w.sized(0, "2Gi", "2Gi") }, growing, false},
		"PVCs do not follow":                  {lacking, []option{withClaims}, false},
		"the gate of PVCs is off": {func(w *world) { lacking(w); w.Features.ResizeClaims = false },
			growing, false},
		"one that is no slot does not serve": {func(w *world) { w.pod(0, "a:1"); w.pod(7, "a:1", notReady) }, nil, false},
		"one that is no slot goes":           {func(w *world) { w.pod(0, "a:1"); w.pod(7, "a:1", terminating) }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, append([]option{inParallel, policy(possible), partition(1)}, tt.options...)...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			for i := 1; i < 4; i++ {
				w.pod(i, "a:1")
			}
			want := "~3"
			if tt.down {
				want = ""
			}
			got := strings.ReplaceAll(strings.ReplaceAll(w.updates(), "-7", ""), "-0", "")
			if strings.TrimSpace(got) != want {
				t.Errorf("%q is updated, not %q: %s", got, want, Make(w.Snapshot))
			}
		})
	}
}

// TestBudget shows which candidates use it up.
func TestBudget(t *testing.T) {
	for name, tt := range map[string]struct {
		replicas int32
		options  []option
		build    func(*world)
		want     []string
	}{
		"ASTS-157: updated ones cost nothing": {4, []option{policy(possible)}, func(w *world) {
			w.pod(0, "a:1")
			w.pod(1, "a:1")
			w.pod(2, "a:2")
			w.pod(3, "a:2")
		}, []string{"~1"}},
		"ASTS-157, with PVCs of their size": {3, []option{policy(possible), withClaims, follow}, func(w *world) {
			w.pod(0, "a:1")
			w.pod(1, "a:1")
			w.pod(2, "a:2")
			w.sized(2, "3Gi", "3Gi")
		}, []string{"~1"}},
		"ASTS-157, but not with smaller ones": {3, []option{policy(possible), withClaims, follow}, func(w *world) {
			w.pod(0, "a:1")
			w.pod(1, "a:1")
			w.pod(2, "a:2")
			setClaims(w.Set, "2Gi")
		}, []string{"grow 2 2Gi"}},
		"ASTS-159: one that is down comes, however many are before it": {5, []option{inParallel, policy(possible)}, func(w *world) {
			w.pod(0, "a:1", notReady)
			w.pod(1, "a:1")
			w.pod(2, "a:1", notReady)
			w.pod(3, "a:1")
			w.pod(4, "a:1")
		}, []string{"~0", "~2"}},
		"ASTS-159: under OrderedReady too": {4, []option{policy(possible)}, func(w *world) {
			w.pod(0, "a:1")
			w.pod(1, "a:1", notReady)
			w.pod(2, "a:1")
			w.pod(3, "a:1")
		}, []string{"~1"}},
		// Pod 2 only gets a label, which costs nothing: it would be updated, if pod 3 before it did not wait.
		"ASTS-159: no available one overtakes": {4, []option{inParallel, policy(possible)}, func(w *world) {
			w.twin("a:2")
			w.pod(0, "a:1", notReady)
			w.pod(1, "a:1")
			w.pod(2, "twin")
			w.pod(3, "a:1")
		}, []string{"~0"}},
		"ASTS-160: one that goes, and one that is specified, are left alone": {3, []option{inParallel, maxUnavailable(3), policy(possible)},
			func(w *world) { w.pod(0, "a:1", specified); w.pod(1, "a:1", terminating); w.pod(2, "a:1") }, []string{"-0", "~2"}},
		"ASTS-160: one that is specified and has to wait": {3, []option{inParallel, policy(possible)},
			func(w *world) { w.pod(0, "a:1", specified); w.pod(1, "a:1", specified); w.pod(2, "a:2") }, []string{"-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.replicas, tt.options...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			w.expect(tt.want...)
		})
	}
}

// TestAnnotationsDoNotWaitForPodsThatAreDown: under OrderedReady a changed annotation waited behind a pod
// that was not ready, though it costs no pod. A changed label keeps the pace, and a pod that only needs an
// annotation overtakes none that waits (ASTS-116 (part)).
func TestAnnotationsDoNotWaitForPodsThatAreDown(t *testing.T) {
	for name, tt := range map[string]struct {
		change string
		states map[int]string
		want   []string
	}{
		"an annotation":                {`"annotations":{"note":"1"},"labels":{"app":"web"}`, nil, []string{"~0", "~1", "~2"}},
		"a label":                      {`"labels":{"app":"web","tier":"x"}`, nil, []string{"~1"}},
		"none that waits is overtaken": {`"annotations":{"note":"1"},"labels":{"app":"web"}`, map[int]string{2: "other"}, []string{"~1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, policy(possible))
			w.stored("other", strings.Replace(rich, "a:1", "a:0", 1))
			w.stored("old", rich)
			for i := range 3 {
				states := []state{made(t, rich)}
				if i == 1 {
					states = append(states, notReady)
				}
				w.pod(i, cmp.Or(tt.states[i], "old"), states...)
			}
			w.stored("new", strings.Replace(rich, `"labels":{"app":"web"}`, tt.change, 1))
			w.expect(tt.want...)
		})
	}
}

// TestPodsWithinThePartitionGetTheirImagesBack: a pod that partition keeps at its revision had the image of
// another one, because somebody patched it or a rollout was interrupted, and kept it for ever
// (IPU-326 (part)).
func TestPodsWithinThePartitionGetTheirImagesBack(t *testing.T) {
	patched := func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "a:2" }
	for name, tt := range map[string]struct {
		options []option
		build   func(w *world)
		want    []string
	}{
		"in place":               {[]option{policy(possible)}, func(w *world) { w.pod(0, "a:1", patched); w.pod(1, "a:1"); w.pod(2, "a:2") }, []string{"~0"}},
		"InPlaceOnly":            {[]option{policy(only)}, func(w *world) { w.pod(0, "a:1", patched); w.pod(1, "a:1"); w.pod(2, "a:2") }, []string{"~0"}},
		"one at a time":          {[]option{policy(possible)}, func(w *world) { w.pod(0, "a:1", patched); w.pod(1, "a:1", patched); w.pod(2, "a:2") }, []string{"~1"}},
		"without an order":       {[]option{policy(possible), unordered}, func(w *world) { w.pod(0, "a:1", patched); w.pod(1, "a:1"); w.pod(2, "a:2") }, []string{"~0"}},
		"not before the rollout": {[]option{policy(possible)}, func(w *world) { w.pod(0, "a:1", patched); w.pod(1, "a:1"); w.pod(2, "a:1") }, []string{"~2"}},
		"not while one is down":  {[]option{policy(possible)}, func(w *world) { w.pod(0, "a:1", patched); w.pod(1, "a:1", notReady); w.pod(2, "a:2") }, nil},
		"in parallel neither": {[]option{policy(possible), inParallel},
			func(w *world) { w.pod(0, "a:1", patched); w.pod(1, "a:1", notReady); w.pod(2, "a:2") }, nil},
		"but if it is the one":        {[]option{policy(possible)}, func(w *world) { w.pod(0, "a:1", patched, notReady); w.pod(1, "a:1"); w.pod(2, "a:2") }, []string{"~0"}},
		"not when it is paused":       {[]option{policy(possible), paused}, func(w *world) { w.pod(0, "a:1", patched); w.pod(1, "a:1"); w.pod(2, "a:2") }, nil},
		"not where each is made anew": {nil, func(w *world) { w.pod(0, "a:1", patched); w.pod(1, "a:1"); w.pod(2, "a:2") }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, append(tt.options, partition(2))...)
			w.at("a:1")
			w.at("a:2")
			tt.build(w)
			w.expect(tt.want...)
			for _, v := range Make(w.Snapshot).Verdicts {
				if v.Update != nil && v.MayRecreate && v.Pod.Name != "web-2" {
					t.Error("it is made anew if this is refused:", v.Pod.Name)
				}
			}
		})
	}
}

// twin stores a second revision with the content of that of an image.
func (w *world) twin(image string) {
	for _, stored := range w.Revisions {
		if stored.Name == w.revisions[image] {
			twin := stored.DeepCopy()
			twin.Name, twin.UID, twin.Revision = "web-twin", "twin", 0
			w.Revisions, w.revisions["twin"] = append(w.Revisions, twin), twin.Name
			return
		}
	}
}

// order is in which order pods are updated that all serve: the one for which there is room first, and so on.
func (w *world) order() string {
	w.t.Helper()
	var order []string
	for n := range w.Pods {
		maxUnavailable(int32(n + 1))(w.Set)
		for _, word := range strings.Fields(w.updates()) {
			if ordinal := word[1:]; !strings.Contains(strings.Join(order, " "), ordinal) {
				order = append(order, ordinal)
			}
		}
	}
	return strings.Join(order, " ")
}

// TestPriorityOrdersUpdates shows in which order five pods are updated without partition.
func TestPriorityOrdersUpdates(t *testing.T) {
	priority := func(strategy pub.UpdatePriorityStrategy) option {
		return rollingWith(func(r *appsv1beta1.RollingUpdateStatefulSetStrategy) {
			r.UnorderedUpdate = &appsv1beta1.StatefulSetUnorderedUpdate{PriorityStrategy: &strategy}
		})
	}
	term := func(weight int32, key, value string) pub.UpdatePriorityWeightTerm {
		term := pub.UpdatePriorityWeightTerm{Weight: weight}
		term.MatchSelector.MatchLabels = map[string]string{key: value}
		return term
	}
	invalid := term(100, "tier", "gold")
	invalid.MatchSelector.MatchLabels = map[string]string{"not a key!": ""}
	gold := []pub.UpdatePriorityWeightTerm{term(10, "tier", "gold"), term(20, "zone", "a"), term(25, "tier", "silver"), invalid}
	byRank := []pub.UpdatePriorityOrderTerm{{OrderedKey: "rank"}}
	gold0, silver1 := map[string]string{"tier": "gold", "zone": "a", "rank": "1"}, map[string]string{"tier": "silver", "rank": "2"}
	for name, tt := range map[string]struct {
		option option
		labels map[int]map[string]string
		want   string
	}{
		"ASTS-151: without a strategy": {unordered, nil, "4 3 2 1 0"},
		"ASTS-151: an empty strategy":  {priority(pub.UpdatePriorityStrategy{}), nil, "4 3 2 1 0"},
		"ASTS-151: equal weights": {priority(pub.UpdatePriorityStrategy{WeightPriority: gold}),
			map[int]map[string]string{1: {"zone": "a"}, 3: {"zone": "a"}}, "3 1 4 2 0"},
		"ASTS-151: equal numbers": {priority(pub.UpdatePriorityStrategy{OrderPriority: byRank}),
			map[int]map[string]string{1: {"rank": "r-7"}, 3: {"rank": "s7"}, 0: {"rank": "8"}}, "4 2 0 3 1"},
		"ASTS-152: the sum of weights": {priority(pub.UpdatePriorityStrategy{WeightPriority: gold}),
			map[int]map[string]string{0: gold0, 1: silver1, 2: {"zone": "a"}, 3: {"tier": "gold"}}, "0 1 2 3 4"},
		"ASTS-154: weights before numbers": {priority(pub.UpdatePriorityStrategy{WeightPriority: gold, OrderPriority: byRank}),
			map[int]map[string]string{0: gold0, 1: silver1, 2: {"rank": "3"}}, "0 1 4 3 2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 5, inParallel, policy(possible), tt.option)
			w.at("a:1")
			w.at("a:2")
			all(w, "a:1", 5)
			for i, labels := range tt.labels {
				for key, value := range labels {
					w.Pods[i].Labels[key] = value
				}
			}
			if got := w.order(); got != tt.want {
				t.Errorf("%s, not %s: %s", got, tt.want, fmt.Sprint(Make(w.Snapshot)))
			}
		})
	}
}

// nobody is a budget that lets no pod go.
type nobody struct{}

func (nobody) Take(*corev1.Pod, disruption.Operation) string { return "budget web allows none" }

// TestARefusedUpdateThatABudgetHoldsIsLookedAtASecondLater: an update in place was refused, and a budget
// holds the pod that is to try again. The time of that attempt has passed, so that only the budget's own time
// is waited for (IPU-184 (part), OPS-106 (part)).
func TestARefusedUpdateThatABudgetHoldsIsLookedAtASecondLater(t *testing.T) {
	for name, tt := range map[string]struct {
		until time.Duration
		want  time.Duration
	}{
		"its time has passed": {-time.Minute, time.Second},
		"its time is now":     {0, time.Second},
		"its time is to come": {500 * time.Millisecond, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4, inParallel, maxUnavailable(2), policy(possible))
			w.at("a:1")
			w.at("a:2")
			all(w, "a:1", 4)
			w.Disruptions = nobody{}
			w.UpdateRefused, w.UpdateHeldUntil = "a policy says no", planTime.Add(tt.until)
			if plan := Make(w.Snapshot); plan.After != tt.want {
				t.Errorf("again after %s, want %s\n%s", plan.After, tt.want, plan)
			}
		})
	}
}
