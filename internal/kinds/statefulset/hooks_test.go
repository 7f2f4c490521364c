package statefulset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

const (
	absent        = pub.LifecycleStateType("")
	normal        = pub.LifecycleStateNormal
	preparing     = pub.LifecycleStatePreparingUpdate
	preparingNew  = pub.LifecycleStatePreparingNormal
	preparingGone = pub.LifecycleStatePreparingDelete
)

// inState is a pod in a lifecycle state; one of none has no label.
func inState(s pub.LifecycleStateType) state {
	return func(pod *corev1.Pod) {
		if pod.Labels[pub.LifecycleState] = string(s); s == absent {
			delete(pod.Labels, pub.LifecycleState)
		}
	}
}

// TestUpdatesOfHookedPods shows ASTS-222: whatever the state, the hook comes first.
func TestUpdatesOfHookedPods(t *testing.T) {
	const prepare = "0: label lifecycle.apps.kruise.io/state=PreparingUpdate, annotation lifecycle.apps.kruise.io/timestamp"
	for name, tt := range map[string]struct {
		state  pub.LifecycleStateType
		hooked bool
		want   []string
	}{
		"no state":                    {absent, true, []string{prepare}},
		"PreparingNormal":             {preparingNew, true, []string{prepare}},
		"Normal":                      {normal, true, []string{prepare}},
		"no state, not hooked":        {absent, false, []string{"~0"}},
		"PreparingNormal, not hooked": {preparingNew, false, []string{"~0"}},
		"Normal, not hooked":          {normal, false, []string{"~0"}},
		"PreparingUpdate":             {preparing, true, nil},
		"PreparingUpdate, not hooked": {preparing, false, []string{"~0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, policy(possible), hooks)
			w.at("a:1")
			w.at("a:2")
			w.pod(0, "a:1", inState(tt.state))
			if tt.hooked {
				w.Pods[0].Labels["update"] = "on"
			}
			w.expect(tt.want...)
		})
	}
}

// TestOtherStatesAreUnavailable shows ASTS-231: a pod in any other lifecycle state counts as down, for the
// status, for the budget of updates and of specified deletions, and for scaling, ordered and in parallel.
func TestOtherStatesAreUnavailable(t *testing.T) {
	for s, serves := range map[pub.LifecycleStateType]bool{absent: true, normal: true, preparingNew: false, preparing: false,
		pub.LifecycleStateUpdating: false, pub.LifecycleStateUpdated: false, preparingGone: false, "Other": false} {
		held := func(pod *corev1.Pod) { // its hooks hold it in its state
			inState(s)(pod)
			pod.Labels["update"], pod.Labels["delete"] = "on", "on"
		}
		counted := func(name string, serving, otherwise []string, w *world) {
			t.Helper()
			t.Run(name+" "+string(s), func(t *testing.T) {
				w.t = t
				want := otherwise
				if serves {
					want = serving
				}
				got := []string{}
				for _, word := range w.does() {
					if word[0] != '0' { // what becomes of the pod itself
						got = append(got, word)
					}
				}
				if len(got) != len(want) {
					t.Errorf("number of results: got %d, want %d; %q, want %q\n%s", len(got), len(want), got, want,
						Make(w.Snapshot))
				} else if len(got) > 0 && got[0] != want[0] {
					t.Errorf("first result: got %q, want %q; %q, want %q\n%s", got[0], want[0], got, want, Make(w.Snapshot))
				}
				if available := Make(w.Snapshot).Status.AvailableReplicas; (int(available) == len(w.Pods)) != serves {
					t.Errorf("%d of %d pods are available", available, len(w.Pods))
				}
			})
		}
		w := newWorld(t, 2, hooks)
		w.at("a:1")
		w.pod(0, "a:1", held)
		counted("ordered, the next", []string{"+1 a:1"}, nil, w)

		w = newWorld(t, 1, hooks)
		w.at("a:1")
		w.pod(0, "a:1", held)
		w.pod(1, "a:1")
		counted("ordered, a condemned one", []string{"-1"}, nil, w)

		w = newWorld(t, 2, hooks, inParallel, scaleBy(1))
		w.at("a:1")
		w.pod(0, "a:1", held)
		counted("in parallel, the next", []string{"+1 a:1"}, nil, w)

		w = newWorld(t, 2, hooks, policy(possible), partition(1))
		w.at("a:1")
		w.at("a:2")
		w.pod(0, "a:1", held)
		w.pod(1, "a:1")
		counted("an update", []string{"~1"}, nil, w)

		w = newWorld(t, 2, hooks, inParallel)
		w.at("a:1")
		w.pod(0, "a:1", held)
		w.pod(1, "a:1", specified)
		counted("a specified deletion", []string{"-1"}, nil, w)
	}
}

// TestEveryDeletionHasItsHook shows ASTS-226 (part): a pod whose preDelete hook holds it, by a label or by a
// finalizer, first prepares.
func TestEveryDeletionHasItsHook(t *testing.T) {
	byFinalizer := func(pod *corev1.Pod) { pod.Finalizers = []string{"example.org/hook"} }
	byLabel := labelled("delete", "on")
	for name, tt := range map[string]struct {
		replicas int32
		options  []option
		states   []state
		change   func(*world)
	}{
		"scaled in, in order":    {0, nil, nil, nil},
		"scaled in, in parallel": {0, []option{inParallel}, nil, nil},
		"reserved":               {0, []option{reserve(0)}, nil, nil},
		"recreated":              {1, nil, nil, func(w *world) { w.at("a:2") }},
		"failed, in order":       {1, nil, []state{failed}, nil},
		"failed, in parallel":    {1, []option{inParallel}, []state{failed}, nil},
		"specified":              {1, nil, []state{specified}, nil},
		"without its volume":     {1, []option{withClaims}, nil, func(w *world) { w.Pods[0].Spec.Volumes = nil }},
	} {
		for by, hook := range map[string]state{" label": byLabel, " finalizer": byFinalizer} {
			t.Run(name+by, func(t *testing.T) {
				w := newWorld(t, tt.replicas, append([]option{hooks}, tt.options...)...)
				w.Set.Spec.Lifecycle.PreDelete.FinalizersHandler = []string{"example.org/hook"}
				w.at("a:1")
				w.pod(0, "a:1", append(tt.states, hook)...)
				if tt.change != nil {
					tt.change(w)
				}
				w.expect("0: label lifecycle.apps.kruise.io/state=PreparingDelete, annotation lifecycle.apps.kruise.io/timestamp")
				inState(preparingGone)(w.Pods[0])
				w.expect()
				delete(w.Pods[0].Labels, "delete")
				w.Pods[0].Finalizers = nil
				w.expect("-0")
			})
		}
	}
}

// TestAPodThatPreparesItsDeletionInItsGracePeriod goes on, though its update does not: scaling in and out
// again during the grace period left it, and under OrderedReady all others, as they were for ever
// (ASTS-229 (part)).
func TestAPodThatPreparesItsDeletionInItsGracePeriod(t *testing.T) {
	inGrace := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{pub.InPlaceUpdateState: `{"revision":"x","updateTimestamp":"2026-01-02T03:04:00Z"}`,
			pub.InPlaceUpdateGrace: `{"revision":"x"}`}
		notReady(pod)
	}
	for name, tt := range map[string]struct {
		image string
		want  string
	}{
		"it stays":       {"a:2", "0: label lifecycle.apps.kruise.io/state=Updating, annotation lifecycle.apps.kruise.io/timestamp"},
		"it is outdated": {"a:1", "-0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, policy(possible), hooks)
			w.at("a:1")
			w.at("a:2")
			w.pod(0, tt.image, in(pub.LifecycleStatePreparingDelete), inGrace)
			w.expect(tt.want)
		})
	}
}
