package restart

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// plays plays the daemon and kubelet with these requests, of which no container becomes ready, and returns what is stopped, and for whom.
func plays(t *testing.T, limit time.Duration, containers []string, requests ...*appsv1beta1.ContainerRecreateRequest) (stopped []string) {
	t.Helper()
	w := newWorld(t, 1)
	w.calm, w.containers = true, nil
	for _, name := range containers {
		w.containers = append(w.containers, run(name, 0))
	}
	for _, r := range requests {
		if err := w.api.Create(t.Context(), r.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	for end := w.clock.Now().Add(limit); w.clock.Now().Before(end); w.clock.Step(time.Second) {
		w.sync()
		w.daemon()
		for _, name := range containers {
			if c := runtime.Newest(w.containers, name); c.Exited {
				stopped = append(stopped, fmt.Sprintf("%s for %s", c.ID, w.by))
				w.containers = append(w.containers, run(name, int(c.RestartCount)+1))
			}
		}
	}
	return stopped
}

func ordered(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Strategy.OrderedRecreate = true }

// CRR-091 (part), CRR-092 (part), PPM-121 (part): a request stops containers in order, and waits for the first of them. The liveness probe
// of its second container fails, and the request for that waits. A later request in order begins with a container of its own, and
// has the same one left to stop. When the first request has ended, the liveness probe restarts its container: the later request waits for it,
// and not the other way round.
func TestALaterRequestThatHasBegunWithAnotherContainerOvertakesNone(t *testing.T) {
	first := asked("first", 0, 0, []string{"c", "a"}, states(), fresh, ordered, func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.ActiveDeadlineSeconds = new(int64(60))
	})
	probes := asked("liveness-u-a-0", time.Second, 0, []string{"a"}, states(), fresh)
	later := asked("later", 2*time.Second, 0, []string{"b", "a"}, states(), fresh, ordered)
	containers := []string{"a", "b", "c"}
	if got, want := plays(t, 9*time.Minute, containers, first, probes),
		[]string{"containerd://c-0 for first", "containerd://a-0 for liveness-u-a-0"}; !slices.Equal(got, want) {
		t.Fatalf("without the later request, stopped within nine minutes: got %q, want %q", got, want)
	}
	if got := plays(t, 9*time.Minute, containers, first, probes, later); !slices.Contains(got, "containerd://a-0 for liveness-u-a-0") {
		t.Errorf("stopped within nine minutes: got %q, without the container whose liveness probe failed", got)
	}
}

// CRR-091 (part), CRR-092 (part): two requests with forceRecreate wait for the same container, which the first has left to stop, and the later one
// names another container, too. Each stops the container, the one that was made before comes before.
func TestOfTwoThatWaitForAContainerTheEarlierStopsItFirst(t *testing.T) {
	first := asked("first", 0, 0, []string{"c", "a"}, states(), fresh, ordered, func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.ActiveDeadlineSeconds = new(int64(60))
	})
	second := asked("second", time.Second, 0, []string{"a"}, states(), fresh, force)
	third := asked("third", 2*time.Second, 0, []string{"b", "a"}, states(), fresh, force)
	got := slices.DeleteFunc(plays(t, 5*time.Minute, []string{"a", "b", "c"}, first, second, third), func(s string) bool { return s[len("containerd://")] != 'a' })
	if want := []string{"containerd://a-0 for second", "containerd://a-1 for third"}; !slices.Equal(got, want) {
		t.Errorf("stops of a: got %q, want %q", got, want)
	}
}
