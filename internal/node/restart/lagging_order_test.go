package restart

import (
	"slices"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// CRR-091 (part), CRR-128 (part): two requests with forceRecreate for a container are made in the same second. The cache of the daemon shows the second one, and only later what the
// daemon itself has written into the first one, whose name comes behind. The first one, which was about to stop the container, does not take
// the stop of the second for its own: the container is stopped for each.
func TestAForcedRequestDoesNotTakeTheStopOfOneThatOvertakesItInALaggingCache(t *testing.T) {
	w := newWorld(t, 1)
	w.calm = true
	w.containers = append(w.containers[:0], run("a", 0), run("b", 0), run("c", 0))
	b := asked("made-first", 0, 0, []string{"a"}, states(), fresh, force)
	a := asked("made-a-moment-later", 0, 0, []string{"a"}, states(), fresh, force)
	for _, r := range []*appsv1beta1.ContainerRecreateRequest{b, a} {
		r.Spec.ActiveDeadlineSeconds = new(int64(600))
		if err := w.api.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	w.sync()
	both := w.cached
	pass := func() {
		w.daemon()
		w.clock.Step(again)
	}
	w.cached = slices.DeleteFunc(slices.Clone(both), func(r appsv1beta1.ContainerRecreateRequest) bool { return r.Name != "made-first" })
	pass() // the first one begins
	pass() // it records which container it is about to stop
	w.cached = both
	pass() // the second one begins
	for range 60 {
		w.sync()
		pass()
		w.kubelet()
		w.manager()
		w.clock.Step(time.Second)
	}
	if got := len(w.stops["made-first/a"]) + len(w.stops["made-a-moment-later/a"]); got != 2 {
		t.Errorf("stops of the container for two requests that are to stop it each: got %d, want 2: %v", got, w.stops)
	}
}
