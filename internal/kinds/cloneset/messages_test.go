package cloneset

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// Who reads why a pod waits knows the fields of the CloneSet and the pods, and nothing of the code.
func TestWhyAPodWaitsCanBeActedUpon(t *testing.T) {
	one, two := storedRevision(1, clonesettest.Image("nginx:1")), storedRevision(2, clonesettest.Image("nginx:2"))
	old := func(name string, options ...func(*corev1.Pod)) *corev1.Pod {
		return clonesettest.Pod(name, one.Name, append([]func(*corev1.Pod){clonesettest.Settled}, options...)...)
	}
	updated := func(name string, options ...func(*corev1.Pod)) *corev1.Pod {
		return clonesettest.Pod(name, two.Name, append([]func(*corev1.Pod){clonesettest.Settled}, options...)...)
	}
	specified := func(pod *corev1.Pod) { pod.Labels[pub.SpecifiedDelete] = "" }
	set := func(options ...func(*appsv1beta1.CloneSet)) *appsv1beta1.CloneSet {
		return clonesettest.Set(5, append([]func(*appsv1beta1.CloneSet){clonesettest.Image("nginx:2"), clonesettest.MaxUnavailable(1)},
			options...)...)
	}
	inPlaceOnly := clonesettest.Policy(appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy)
	hooked := func(set *appsv1beta1.CloneSet) {
		set.Spec.Lifecycle = &pub.Lifecycle{PreDelete: &pub.LifecycleHook{LabelsHandler: map[string]string{"hook": "yes"}}}
	}
	label := func(key, value string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Labels[key] = value } }
	five := func(first ...*corev1.Pod) []*corev1.Pod {
		for i := len(first); i < 5; i++ {
			first = append(first, old(fmt.Sprintf("web-%d", i)))
		}
		return first
	}
	for name, tt := range map[string]struct {
		set  *appsv1beta1.CloneSet
		pods []*corev1.Pod
		want string
	}{
		"an old pod is down": {set(inPlaceOnly), five(clonesettest.Pod("web-0", "web-gone", clonesettest.Settled, unready)),
			"4 of 5 pods must stay available (maxUnavailable 1), and only 4 are"},
		"an updated pod is down": {set(), five(updated("web-0", unready)),
			"waiting for 1 updated pod to become available; 1 pod at a time (maxUnavailable 1)"},
		"two updated pods are down": {set(clonesettest.MaxUnavailable(2)), five(updated("web-0", unready), updated("web-1", unready)),
			"waiting for 2 updated pods to become available; 2 pods at a time (maxUnavailable 2)"},
		"a pod that is to go is down": {set(clonesettest.MaxUnavailable(2), hooked),
			five(updated("web-0", unready), old("web-1", unready, specified,
				clonesettest.InState(pub.LifecycleStatePreparingDelete), label("hook",
					"yes"))), "waiting for 1 updated pod to become available and 1 pod to be deleted; 2 pods at a time (maxUnavailable 2)"},
		"the partition keeps one": {set(clonesettest.Partition(1)), []*corev1.Pod{updated("web-0"), updated("web-1"), updated("web-2"),
			updated("web-3"), old("web-4")}, "partition keeps 1 pod at its revision"},
		"paused": {set(clonesettest.Paused(true)), five(), "the update is paused; set paused to false"},
		"a deletion that nobody can bear": {set(), five(old("web-0", unready), old("web-1", unready), old("web-2", specified)),
			"it is specified for deletion, but 4 of 5 pods must stay (maxUnavailable 1); with those that go now 3 are ready, 3 available"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(tt.set, Features{}, []*appsv1.ControllerRevision{one, two}, tt.pods...)
			if !strings.Contains(plan.String(), tt.want) {
				t.Errorf("does not say %q:\n%s", tt.want, plan)
			}
		})
	}
}

// TestMessagesKeepStill: what is read or met in any order is told in one, and never without end (CS-223,
// CS-355).
func TestMessagesKeepStill(t *testing.T) {
	if got := Make(Snapshot{Set: clonesettest.Set(0), Snapshot: podplan.Snapshot{Now: clonesettest.Now}, Orphans: []string{"b",
		"a"}}).Orphans; !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q, want %q", got, []string{"a", "b"})
	}
	if n := len(Make(Snapshot{Set: clonesettest.Set(math.MaxInt32), Snapshot: podplan.Snapshot{Now: clonesettest.Now},
		Random: rand.IntN}).Create); n != maxCreate {
		t.Errorf("%d pods in one plan", n)
	}
}
