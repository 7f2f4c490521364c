package controller

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// steps records which lifecycle states pods enter, each with the image and with the keys that hold the pod
// not ready just then, and that a pod is deleted.
func (s *simulated) steps() *[]string {
	var seen []string
	look := func(pod *corev1.Pod) string {
		words := []string{pod.Labels[pub.LifecycleState], pod.Spec.Containers[0].Image}
		if c := readiness.Condition(pod, pub.KruisePodReady); c != nil {
			for _, key := range []string{"preDeleteHook", "preUpdateHook"} {
				if c.Status == corev1.ConditionFalse && strings.Contains(c.Message, `{"userAgent":"Lifecycle","key":"`+key+`"}`) {
					words = append(words, key)
				}
			}
		}
		return strings.Join(words, " ")
	}
	s.BeforeWrite = func(w simulation.Write, before, after client.Object) {
		switch now, isPod := after.(*corev1.Pod); {
		case w.Key.Kind == "Pod" && w.Verb == "delete":
			seen = append(seen, "deleted")
		case isPod:
			was := ""
			if before != nil {
				was = look(before.(*corev1.Pod))
			}
			if step := look(now); step != was {
				seen = append(seen, step)
			}
		}
	}
	return &seen
}

// CS-190, IPU-155: what each hook holds up, and what markPodNotReady does in each. A new pod that waits for
// its whole preNormal hook is shown by TestANewPodWaitsForItsWholePreNormalHook.
func TestWhatHooksHoldUp(t *testing.T) {
	// IPU-143: the entries that steps looks for are those of hooks; TestRequestsHaveTheirOwnEntries of
	// container restarts has theirs.
	traffic := map[string]string{"traffic": "on"}
	hooks := func(mark bool) func(*appsv1beta1.CloneSet) {
		return func(set *appsv1beta1.CloneSet) {
			hook := &pub.LifecycleHook{LabelsHandler: traffic, MarkPodNotReady: mark}
			set.Spec.Lifecycle = &pub.Lifecycle{PreNormal: hook, InPlaceUpdate: hook, PreDelete: hook}
		}
	}
	let, takeBack := unlabel("traffic"), label("traffic", "on")
	each := func(edit func(*corev1.Pod)) func(*tale) {
		return func(n *tale) {
			for _, pod := range n.active() {
				if state := pod.Labels[pub.LifecycleState]; state != string(pub.LifecycleStateNormal) {
					n.edit(pod, edit)
				}
			}
		}
	}
	user := func(change func(*appsv1beta1.CloneSet)) func(*tale) {
		return func(n *tale) { n.Edit(change) }
	}
	// The operator takes the pod back while its update is still under way.
	early := func(n *tale) {
		each(let)(n)
		for n.active()[0].Labels[pub.LifecycleState] != string(pub.LifecycleStateUpdating) {
			n.Round()
		}
		each(takeBack)(n)
	}
	specify := func(n *tale) { n.edit(n.active()[0], label(pub.SpecifiedDelete, "")) }
	reCreate := clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy)
	for name, test := range map[string]struct {
		set  func(*appsv1beta1.CloneSet)
		acts []func(*tale)
		want [][]string // what happens after each act until all rests; without markPodNotReady the keys are left out
	}{
		"an update in place": {nil, []func(*tale){user(clonesettest.HookedImage("nginx:2")), each(let), each(takeBack)},
			[][]string{{"PreparingUpdate nginx:1 preUpdateHook"}, {"Updating nginx:2 preUpdateHook", "Updated nginx:2"},
				{"Normal nginx:2"}}},
		"an update after which nothing is waited for": {nil, []func(*tale){user(clonesettest.HookedImage("nginx:2")), early},
			[][]string{{"PreparingUpdate nginx:1 preUpdateHook"}, {"Updating nginx:2 preUpdateHook", "Normal nginx:2"}}},
		"an update that is taken back": {nil, []func(*tale){user(clonesettest.HookedImage("nginx:2")), user(clonesettest.HookedImage("nginx:1"))},
			[][]string{{"PreparingUpdate nginx:1 preUpdateHook"}, {"Normal nginx:1"}}},
		"scale-in": {nil, []func(*tale){user(clonesettest.Replicas(0)), each(let)},
			[][]string{{"PreparingDelete nginx:1 preDeleteHook"}, {"deleted"}}},
		"specified deletion": {nil, []func(*tale){specify, each(let)}, [][]string{{"PreparingDelete nginx:1 preDeleteHook"},
			{"deleted", "PreparingNormal nginx:1", "Normal nginx:1"}}},
		"a recreate update": {reCreate, []func(*tale){user(clonesettest.HookedImage("nginx:2")), each(let)},
			[][]string{{"PreparingDelete nginx:1 preDeleteHook"}, {"deleted", "PreparingNormal nginx:2", "Normal nginx:2"}}},
	} {
		for _, mark := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				options := []func(*appsv1beta1.CloneSet){hooks(mark), clonesettest.HookedImage("nginx:1")}
				if test.set != nil {
					options = append(options, test.set)
				}
				s := simulate(1, clonesettest.Set(1, options...), cloneset.Features{})
				seen := s.steps()
				if err := s.Settle(100); err != nil {
					t.Fatal(err)
				}
				if want := []string{"PreparingNormal nginx:1", "Normal nginx:1"}; !slices.Equal(*seen, want) {
					t.Errorf("a new pod: %q, want %q", *seen, want)
				}
				for i, act := range test.acts {
					*seen = nil
					act(&tale{simulated: s})
					if err := s.Settle(100); err != nil {
						t.Fatal(err)
					}
					want := test.want[i]
					if !mark {
						want = nil
						for _, step := range test.want[i] {
							step, _, _ = strings.Cut(step, " pre")
							want = append(want, step)
						}
					}
					if diff := cmp.Diff(want, *seen); diff != "" {
						t.Errorf("mark %t, after act %d: %s", mark, i+1, diff)
					}
				}
			})
		}
	}
}

// CS-190 (part), IPU-152 (part): a new pod is not available before its preNormal hook has wholly arrived,
// however ready it is; then it is.
func TestANewPodWaitsForItsWholePreNormalHook(t *testing.T) {
	s := simulate(1, clonesettest.Set(2, func(set *appsv1beta1.CloneSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{PreNormal: &pub.LifecycleHook{LabelsHandler: map[string]string{"registered": "yes"},
			FinalizersHandler: []string{"registry.example/entry"}}}
	}), cloneset.Features{})
	expect := func(when string, available int32, states ...string) {
		t.Helper()
		if err := s.Settle(100); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, pod := range s.active() {
			got = append(got, pod.Labels[pub.LifecycleState])
		}
		slices.Sort(got)
		status := s.set().Status
		if status.AvailableReplicas != available {
			t.Errorf("%s: available replicas: got %d, want %d", when, status.AvailableReplicas, available)
		}
		if status.ReadyReplicas != 2 {
			t.Errorf("%s: ready replicas: got %d, want 2", when, status.ReadyReplicas)
		}
		if !slices.Equal(got, states) {
			t.Errorf("%s: got %q, want %q", when, got, states)
		}
	}
	preparing, normal := string(pub.LifecycleStatePreparingNormal), string(pub.LifecycleStateNormal)
	expect("new", 0, preparing, preparing)
	names := []string{s.active()[0].Name, s.active()[1].Name}
	tale := &tale{simulated: s}
	tale.edit(s.active()[0], label("registered", "no"))
	tale.edit(s.active()[1], func(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, "registry.example/entry") })
	expect("another value; the finalizer alone", 0, preparing, preparing)
	tale.edit(s.active()[0], label("registered", "yes"))
	expect("the label alone", 0, preparing, preparing)
	tale.edit(s.active()[0], func(pod *corev1.Pod) { pod.Finalizers = append(pod.Finalizers, "registry.example/entry") })
	expect("one has both", 1, normal, preparing)
	tale.edit(s.active()[1], label("registered", "yes"))
	expect("both have", 2, normal, normal)
	if got := []string{s.active()[0].Name, s.active()[1].Name}; !slices.Equal(got, names) {
		t.Errorf("pods %v became %v", names, got)
	}
}
