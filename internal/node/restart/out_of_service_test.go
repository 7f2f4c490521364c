package restart

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// CRR-091 (part), CRR-086 (part): an earlier request restarts its containers in order, and lets the first run for an hour before the second. A later one with
// unreadyGracePeriodSeconds 0 names the second, too, and another container. The manager takes its pod out of service when it begins, until it is
// completed. So it does not begin while it has to leave a container to the other one: the pod, all of whose containers are ready,
// would serve nobody for an hour.
func TestARequestThatTakesItsPodOutOfServiceDoesNotBeginWhileItHasToWaitForAnEarlierOne(t *testing.T) {
	w := newWorld(t, 1)
	w.calm = true
	w.containers = append(w.containers[:0], run("a", 0), run("b", 0), run("c", 0))
	first := asked("first", 0, 0, []string{"b", "a"}, states(), fresh, ordered, func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.Strategy.MinStartedSeconds = 3600
	})
	later := asked("later", time.Minute, 0, []string{"c", "a"}, states(), fresh, func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.Strategy.UnreadyGracePeriodSeconds = new(int64(0))
	})
	for _, r := range []*appsv1beta1.ContainerRecreateRequest{first, later} {
		if err := w.api.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	out := 0
	for range 2 * 3600 {
		w.sync()
		w.daemon()
		w.kubelet()
		now := &appsv1beta1.ContainerRecreateRequest{}
		if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(later), now); err != nil {
			t.Fatal(err)
		}
		if now.Status.Phase == recreating && now.Status.CompletionTime == nil {
			out++
		}
		w.clock.Step(time.Second)
		if out > 60 {
			break
		}
	}
	if out > 60 {
		t.Errorf("the pod is out of service for more than a minute for a request that waits for an earlier one")
	}
}
