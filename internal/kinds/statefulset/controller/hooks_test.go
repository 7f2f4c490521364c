package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/simulation"
)

const hookFinalizer = "example.org/traffic"

// hooked are all hooks of a label and a finalizer.
func hooked(mark bool) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) {
		hook := &pub.LifecycleHook{LabelsHandler: map[string]string{"traffic": "on"}, FinalizersHandler: []string{hookFinalizer},
			MarkPodNotReady: mark}
		set.Spec.Lifecycle = &pub.Lifecycle{PreNormal: hook, InPlaceUpdate: hook, PreDelete: hook}
	}
}

// hookedImage is a template of pods that are fully hooked from the first.
func hookedImage(image string) func(*appsv1beta1.StatefulSet) {
	return templated(`{"labels":{"app":"web","traffic":"on"},"finalizers":["`+hookFinalizer+`"]}`,
		`{"containers":[{"name":"nginx","image":"`+image+`"}]}`)
}

func unlabel(pod *corev1.Pod) { delete(pod.Labels, "traffic") }

func unfinalize(pod *corev1.Pod) {
	pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return f == hookFinalizer })
}

func label(pod *corev1.Pod) { pod.Labels["traffic"] = "on" }

func finalize(pod *corev1.Pod) {
	if unfinalize(pod); pod.DeletionTimestamp == nil {
		pod.Finalizers = append(pod.Finalizers, hookFinalizer)
	}
}

// states records which lifecycle states web-0 enters, each with its image and with the keys that hold it not
// ready then, and that it is deleted. It checks that a change of state has its time.
func (s *simulated) states(t *testing.T) *[]string {
	var seen []string
	look := func(pod *corev1.Pod) string {
		words := []string{pod.Labels[pub.LifecycleState], pod.Spec.Containers[0].Image}
		if c := readiness.Condition(pod, pub.KruisePodReady); c != nil {
			for _, key := range []string{"preDeleteHook", "preUpdateHook"} {
				if c.Status == corev1.ConditionFalse && strings.Contains(c.Message, `{"userAgent":"Lifecycle","key":"`+key+`"}`) {
					words = append(words, key)
				}
			}
			if ready := readiness.Condition(pod, corev1.PodReady); len(words) > 2 && ready.Status != corev1.ConditionFalse {
				t.Errorf("%v, and Ready is %s", words, ready.Status)
			}
		}
		return strings.Join(words, " ")
	}
	s.BeforeWrite = func(w simulation.Write, before, after client.Object) {
		now, isPod := after.(*corev1.Pod)
		switch was, had := before.(*corev1.Pod); {
		case w.Key != podKey("web-0"):
		case w.Verb == "delete":
			seen = append(seen, "deleted")
		case !isPod:
		case !had:
			seen = append(seen, look(now))
		case look(now) != look(was):
			seen = append(seen, look(now))
			changed := now.Labels[pub.LifecycleState] != was.Labels[pub.LifecycleState]
			if changed && now.Annotations[pub.LifecycleTimestamp] != s.Now().UTC().Format(time.RFC3339) {
				t.Errorf("%s at %s", look(now), now.Annotations[pub.LifecycleTimestamp])
			}
		}
	}
	return &seen
}

// TestWhatHooksHoldUp shows what each hook holds up: ASTS-220, ASTS-221 (part), ASTS-222 (part), ASTS-223,
// ASTS-224, ASTS-225, and ASTS-226, with TestEveryDeletionHasItsHook. It shows what markPodNotReady does then
// (ASTS-227 (part)), and that each change has its time (ASTS-228).
func TestWhatHooksHoldUp(t *testing.T) {
	type act = func(*simulated)
	user := func(changes ...func(*appsv1beta1.StatefulSet)) act {
		return func(s *simulated) {
			s.Edit(func(set *appsv1beta1.StatefulSet) {
				for _, change := range changes {
					change(set)
				}
			})
		}
	}
	pod := func(changes ...func(*corev1.Pod)) act {
		return func(s *simulated) {
			for _, change := range changes {
				s.edit("web-0", change)
			}
		}
	}
	let, takeBack := pod(unlabel, unfinalize), pod(label, finalize)
	early := func(s *simulated) { // the operator takes the pod back while its update is still under way
		let(s)
		for s.Pod("web-0").Labels[pub.LifecycleState] != string(pub.LifecycleStateUpdating) {
			s.Round()
		}
		takeBack(s)
	}
	unhook := func(set *appsv1beta1.StatefulSet) { set.Spec.Lifecycle = nil }
	reCreate := func(set *appsv1beta1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = "ReCreate" }
	scale := func(n int32) func(*appsv1beta1.StatefulSet) {
		return func(set *appsv1beta1.StatefulSet) { set.Spec.Replicas = &n }
	}
	second, update := hookedImage("nginx:2"), []string{"PreparingUpdate nginx:1 preUpdateHook"}
	going, unhindered := []string{"PreparingDelete nginx:1 preDeleteHook"}, []string{"Updating nginx:2", "Updated nginx:2"}
	for name, test := range map[string]struct {
		set  func(*appsv1beta1.StatefulSet)
		acts []act
		want [][]string // what happens after each act until all rests; without markPodNotReady the keys are left out
	}{
		"an update in place": {nil, []act{user(second), pod(unlabel), pod(unfinalize), pod(label), pod(finalize)},
			[][]string{update, nil, {"Updating nginx:2 preUpdateHook", "Updated nginx:2"}, nil, {"Normal nginx:2"}}},
		"an update of a pod that nothing holds": {nil, []act{let, user(second)},
			[][]string{nil, unhindered}},
		"an update of a pod that the finalizer alone holds": {nil, []act{pod(unlabel), user(second)}, [][]string{nil, update}},
		"an update of a pod whose label has another value": {nil, []act{pod(unfinalize, func(pod *corev1.Pod) { pod.Labels["traffic"] = "off" }),
			user(second)}, [][]string{nil, unhindered}},
		"an update after which nothing is waited for": {nil, []act{user(second), early},
			[][]string{update, {"Updating nginx:2 preUpdateHook", "Normal nginx:2"}}},
		"an update after which there is no hook": {nil, []act{user(second), let, user(unhook)},
			[][]string{update, {"Updating nginx:2 preUpdateHook", "Updated nginx:2"}, {"Normal nginx:2"}}},
		"an update that is taken back": {nil, []act{user(second), user(hookedImage("nginx:1"))},
			[][]string{update, {"Normal nginx:1"}}},
		"an update that is taken back late": {nil, []act{user(second), pod(unlabel), user(hookedImage("nginx:1")), pod(label)},
			[][]string{update, nil, {"Updated nginx:1"}, {"Normal nginx:1"}}},
		"another update": {nil, []act{user(second), let, user(hookedImage("nginx:3")), let, takeBack},
			[][]string{update, {"Updating nginx:2 preUpdateHook", "Updated nginx:2"}, {"PreparingUpdate nginx:2 preUpdateHook"},
				{"Updating nginx:3 preUpdateHook", "Updated nginx:3"}, {"Normal nginx:3"}}},
		"scale-in": {nil, []act{user(scale(0)), pod(unlabel), pod(unfinalize)}, [][]string{going, nil, {"deleted"}}},
		"specified deletion": {nil, []act{pod(func(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "" }), let},
			[][]string{going, {"deleted", "Normal nginx:1"}}},
		"a recreate update": {reCreate, []act{user(second), let}, [][]string{going, {"deleted", "Normal nginx:2"}}},
		"a failed pod": {nil, []act{func(s *simulated) { s.Node.Fail("web-0") }, let}, [][]string{going,
			{"deleted", "Normal nginx:1"}}},
		"what a user deletes": {nil, []act{func(s *simulated) { s.EndGracefully(podKey("web-0")); let(s) }},
			[][]string{{"Normal nginx:1"}}},
	} {
		for _, mark := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				options := []func(*appsv1beta1.StatefulSet){inPlace, hooked(mark), hookedImage("nginx:1")}
				if test.set != nil {
					options = append(options, test.set)
				}
				s := simulate(1, makeSet(1, options...), everything)
				seen := s.states(t)
				s.ActFor(time.Minute)
				if want := []string{"Normal nginx:1"}; !slices.Equal(*seen, want) {
					t.Errorf("a new pod: %q, want %q", *seen, want)
				}
				for i, act := range test.acts {
					*seen = nil
					act(s)
					s.ActFor(time.Minute)
					want := append([]string(nil), test.want[i]...)
					for j := range want {
						if !mark {
							want[j], _, _ = strings.Cut(want[j], " pre")
						}
					}
					if diff := cmp.Diff(want, *seen); diff != "" {
						t.Errorf("mark %t, after act %d: %s", mark, i+1, diff)
					}
				}
				pod := s.Pod("web-0")
				if name == "another update" && pod.Labels["traffic"] != "on" {
					t.Errorf("the hook's label is not there any more: %v", pod.Labels)
				}
				if name == "another update" && !slices.Contains(pod.Finalizers, hookFinalizer) {
					t.Errorf("the hook's finalizer is not there any more: %v", pod.Finalizers)
				}
			})
		}
	}
}

// TestPodsWithoutTheGate shows ASTS-227, with TestWhatHooksHoldUp, and TestPodsGetTheirGate of the webhook:
// such a pod is not held.
func TestPodsWithoutTheGate(t *testing.T) {
	s := simulate(1, makeSet(1, inPlace, hooked(true), hookedImage("nginx:1")), everything)
	s.ActFor(time.Minute)
	s.edit("web-0", func(pod *corev1.Pod) {
		pod.Spec.ReadinessGates = nil
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == pub.KruisePodReady })
	})
	seen := s.states(t)
	s.Edit(hookedImage("nginx:2"))
	s.ActFor(time.Minute)
	pod := s.Pod("web-0")
	if want := []string{"PreparingUpdate nginx:1"}; !slices.Equal(*seen, want) {
		t.Errorf("states: got %q, want %q: %s", *seen, want, s.describe())
	}
	if !readiness.Ready(pod) {
		t.Errorf("the pod is not ready: %s", s.describe())
	}
	if c := readiness.Condition(pod, pub.KruisePodReady); c != nil {
		t.Errorf("the pod has the condition %+v: %s", c, s.describe())
	}
}

// TestANewPodWaitsForItsPreNormalHook shows ASTS-221, with TestFirstState: it is not available before the
// hook has wholly arrived, or is gone, however ready it is.
func TestANewPodWaitsForItsPreNormalHook(t *testing.T) {
	for name, last := range map[string]func(*simulated){
		"the rest of the hook arrives": func(s *simulated) { s.edit("web-0", finalize) },
		"there is no hook any more": func(s *simulated) {
			s.Edit(func(set *appsv1beta1.StatefulSet) { set.Spec.Lifecycle = nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, makeSet(1, inPlace, hooked(false)), everything)
			seen := s.states(t)
			expect := func(available int32, states ...string) {
				t.Helper()
				s.ActFor(time.Minute)
				if status := s.set().Status; status.AvailableReplicas != available {
					t.Errorf("available replicas: got %d, want %d; %d available, %d ready, %v", status.AvailableReplicas,
						available,
						status.AvailableReplicas, status.ReadyReplicas, *seen)
				} else if status.ReadyReplicas != 1 {
					t.Errorf("ready replicas: got %d, want 1; %d available, %d ready, %v", status.ReadyReplicas,
						status.AvailableReplicas,
						status.ReadyReplicas, *seen)
				} else if !slices.Equal(*seen, states) {
					t.Errorf("*seen: got %q, want %q; %d available, %d ready, %v", *seen, states, status.AvailableReplicas, status.ReadyReplicas, *seen)
				}
			}
			expect(0, "PreparingNormal nginx:1")
			s.edit("web-0", label)
			expect(0, "PreparingNormal nginx:1")
			last(s)
			expect(1, "PreparingNormal nginx:1", "Normal nginx:1")
		})
	}
}

// TestADeletionThatIsNotNeededAnyMore shows ASTS-229, and ASTS-230: a pod that prepares its deletion comes
// back if it is a slot again, and goes on if there is still a reason; it is not updated in place before it is
// back.
func TestADeletionThatIsNotNeededAnyMore(t *testing.T) {
	type option = func(*appsv1beta1.StatefulSet)
	replicas := func(n int32) option { return func(set *appsv1beta1.StatefulSet) { set.Spec.Replicas = &n } }
	reCreate := func(set *appsv1beta1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy = "ReCreate" }
	partition := func(n int32) option {
		return func(set *appsv1beta1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = &n }
	}
	noop := func(*appsv1beta1.StatefulSet) {}
	const back = "Normal nginx:1"
	for name, tt := range map[string]struct {
		start option
		first option
		edit  func(*corev1.Pod)
		then  option
		want  []string
	}{
		"scaled out again":            {noop, replicas(0), nil, replicas(1), []string{back}},
		"and it is not wholly hooked": {noop, replicas(0), unlabel, replicas(1), []string{"PreparingNormal nginx:1"}},
		"scaled out with another template": {noop, replicas(0), nil,
			func(set *appsv1beta1.StatefulSet) { replicas(1)(set); hookedImage("nginx:2")(set) }, nil},
		"another template meanwhile":   {noop, replicas(0), nil, hookedImage("nginx:2"), nil},
		"the template is taken back":   {reCreate, hookedImage("nginx:2"), nil, hookedImage("nginx:1"), []string{back}},
		"another one that asks for it": {reCreate, hookedImage("nginx:2"), nil, hookedImage("nginx:3"), nil},
		"partition keeps it":           {reCreate, hookedImage("nginx:2"), nil, partition(1), []string{back}},
		"a user wants it to go": {noop, replicas(0), func(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "" }, replicas(1),
			nil},
	} {
		for _, mark := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				s := simulate(1, makeSet(1, inPlace, hooked(mark), hookedImage("nginx:1"), tt.start), everything)
				seen := s.states(t)
				s.ActFor(time.Minute)
				s.Edit(tt.first)
				s.ActFor(time.Minute)
				if got := s.Pod("web-0").Labels[pub.LifecycleState]; got != string(pub.LifecycleStatePreparingDelete) {
					t.Fatalf("label lifecycle state of pod web-0: got %q, want %q\n%s", got,
						string(pub.LifecycleStatePreparingDelete),
						s.describe())
				}
				if got := readiness.Ready(s.Pod("web-0")); got == mark {
					t.Fatalf("pod web-0 is ready: got %t, want another value\n%s", got, s.describe())
				}
				if tt.edit != nil {
					s.edit("web-0", tt.edit)
				}
				*seen = nil
				s.Edit(tt.then)
				s.ActFor(time.Minute)
				if diff := cmp.Diff(tt.want, *seen); diff != "" {
					t.Errorf("*seen (-want +got):\n%s", diff)
				}
				for _, c := range s.set().Status.Conditions {
					t.Errorf("condition %+v", c)
				}
				if tt.want != nil { // it serves again, unless it waits for its preNormal hook
					if want := tt.edit == nil; (s.set().Status.AvailableReplicas == 1) != want {
						t.Errorf("the pod is available: want %t: %s", want, s.describe())
					}
					if !readiness.Ready(s.Pod("web-0")) {
						t.Errorf("the pod is not ready: %s", s.describe())
					}
					return
				}
				s.edit("web-0", unlabel)
				s.edit("web-0", unfinalize)
				s.ActFor(time.Minute)
				if len(*seen) == 0 {
					t.Errorf("its hook let go: *seen: got none, want some\n%q", *seen)
				} else if (*seen)[0] != "deleted" {
					t.Errorf("its hook let go: (*seen)[0]: got %q, want %q\n%q", (*seen)[0], "deleted", *seen)
				}
			})
		}
	}
}

// TestADeletionThatIsNotNeededInTheMidstOfAnUpdate shows ASTS-229 (part): a pod that comes back while its new
// container does not run yet is not in service before that runs. It came back as Normal, which says that the
// update is complete.
func TestADeletionThatIsNotNeededInTheMidstOfAnUpdate(t *testing.T) {
	replicas := func(n int32) func(*appsv1beta1.StatefulSet) {
		return func(set *appsv1beta1.StatefulSet) { set.Spec.Replicas = &n }
	}
	keepsTraffic := func(set *appsv1beta1.StatefulSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"traffic": "on"}}}
	}
	for name, seconds := range map[string]int32{"at once": 0, "with a grace period": 20} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, makeSet(2, inPlace, inParallel, keepsTraffic, hookedImage("nginx:1"), grace(seconds)), everything)
			s.Node.Digests = map[string]string{"nginx:1": "a", "nginx:2": ""} // which nobody can pull
			state := func() string { return s.Pod("web-1").Labels[pub.LifecycleState] }
			s.ActFor(time.Minute)
			s.Edit(hookedImage("nginx:2"))
			s.ActFor(5 * time.Second)
			s.Edit(replicas(1))
			s.ActFor(5 * time.Second)
			if got := state(); got != string(pub.LifecycleStatePreparingDelete) {
				t.Fatalf("state of the pod: got %q, want %q\n%s", got, string(pub.LifecycleStatePreparingDelete),
					s.describe())
			}
			s.Edit(replicas(2))
			s.ActFor(time.Minute)
			if state() != string(pub.LifecycleStateUpdating) {
				t.Errorf("state: got %q, want Updating: %s", state(), s.describe())
			}
			pod := s.Pod("web-1")
			if image := pod.Spec.Containers[0].Image; image != "nginx:2" {
				t.Errorf("image: got %s, want nginx:2: %s", image, s.describe())
			}
			if readiness.Condition(pod, pub.InPlaceUpdateReady).Status != corev1.ConditionFalse {
				t.Errorf("conditions: got %+v, want the update not to be ready: %s", pod.Status.Conditions, s.describe())
			}
			s.Node.Digests["nginx:2"] = "b"
			s.ActFor(5 * time.Minute)
			if got := s.set().Status.UpdatedAvailableReplicas; got != 2 {
				t.Errorf("updated and available replicas: got %d, want 2\n%s", got, s.describe())
			}
			if got := state(); got != string(pub.LifecycleStateNormal) {
				t.Errorf("state of the pod: got %q, want %q\n%s", got, string(pub.LifecycleStateNormal), s.describe())
			}
		})
	}
}
