package restart

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// hanging is a runtime whose containers hang since their start.
type hanging struct {
	containers []runtime.Container
	mu         sync.Mutex
	stopped    []string
}

func (h *hanging) Containers(context.Context, string) ([]runtime.Container, error) {
	return h.containers, nil
}

func (h *hanging) Status(_ context.Context, id string) (runtime.Status, error) {
	at := slices.IndexFunc(h.containers, func(c runtime.Container) bool { return c.ID == id })
	return runtime.Status{Container: h.containers[at], StartedAt: h.containers[at].CreatedAt}, nil
}

func (h *hanging) Exec(context.Context, string, []string, time.Duration) error { return nil }

func (h *hanging) Stop(_ context.Context, id string, _ time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = append(h.stopped, id)
	return nil
}

// PPM-121: a user restarts a container, by a request without activeDeadlineSeconds. The new one hangs in its start, is
// never ready, and its liveness probe fails, which the node daemon runs instead of kubelet: the manager makes a request
// for its restart. That must be carried out, as kubelet would restart the container. The request of the user waits for a
// container that is ready, which only this restart can bring about: if it keeps the other one waiting, neither ends, the
// one of the probe runs out of time after ten minutes, as all that follow do, and the container hangs for ever.
// The same holds for a request that waits for another container, in order or because that is not on the node.
func TestARequestThatWaitsForAContainerToBeReadyKeepsNoLivenessProbeFromRestartingIt(t *testing.T) {
	one := func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Containers = r.Spec.Containers[:1] }
	other := func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Containers = r.Spec.Containers[1:] }
	third := func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.Containers = append(r.Spec.Containers, appsv1beta1.ContainerRecreateRequestContainer{Name: "c",
			StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{ContainerID: "containerd://c-0"}})
	}
	hung, back := State{Name: "a", Phase: recreating, IsKilled: true}, State{Name: "a", Phase: succeeded, IsKilled: true}
	left, absent := State{Name: "b", Phase: pending}, State{Name: "b", Phase: pending, Message: notFound}
	crashes := State{Name: "b", Phase: recreating, IsKilled: true}
	for name, test := range map[string]struct {
		users      *appsv1beta1.ContainerRecreateRequest
		containers []runtime.Container
	}{
		"one container":                        {request(one, states(hung)), []runtime.Container{run("a", 1)}},
		"in order":                             {request(inOrder, states(hung, left)), []runtime.Container{run("a", 1), run("b", 0)}},
		"another is absent":                    {request(states(hung, absent)), []runtime.Container{run("a", 1)}},
		"it came back, another is absent":      {request(states(back, absent)), []runtime.Container{run("a", 1)}},
		"only another is named, and is absent": {request(other, states(absent)), []runtime.Container{run("a", 1)}},
		"in order, it came back, another crashes": {request(inOrder, third, states(back, crashes, State{Name: "c", Phase: pending})),
			[]runtime.Container{run("a", 1), run("b", 1), run("c", 0)}},
	} {
		t.Run(name, func(t *testing.T) { restartsWhatHangs(t, test.users, test.containers) })
	}
}

func restartsWhatHangs(t *testing.T, users *appsv1beta1.ContainerRecreateRequest, containers []runtime.Container) {
	const next = "containerd://a-1"
	one := func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Containers = r.Spec.Containers[:1] }
	probes := request(one, states(), func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Name, r.UID, r.Status.Phase = "liveness-u-a-1", "l", ""
		r.CreationTimestamp = metav1.NewTime(epoch.Add(2 * time.Minute))
		r.Spec.ActiveDeadlineSeconds = new(int64(600))
		r.Spec.Containers[0].StatusContext = &appsv1beta1.ContainerRecreateRequestContainerContext{ContainerID: next, RestartCount: 1}
	})
	if stopped := stops(t, containers, users, probes); !slices.Equal(stopped, []string{next}) {
		t.Errorf("containers that were stopped within nine minutes: got %q, want the one whose liveness probe failed", stopped)
	}
}

// CRR-128 (part): two requests with forceRecreate each stop the container themselves: the second one does not take the
// stop of the first for its own, but begins when the container runs again.
func TestAForcedRequestStopsWhatAnotherHasStopped(t *testing.T) {
	s := Snapshot{Request: request(states(State{Name: "a", Phase: recreating, IsKilled: true}), func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.Containers = r.Spec.Containers[:1]
	}), Containers: []runtime.Container{end()}, Seen: epoch, Now: epoch.Add(time.Minute)}
	next := request(strategy(func(s *appsv1beta1.ContainerRecreateRequestStrategy) { s.ForceRecreate = true }))
	next.Spec.Containers = next.Spec.Containers[:1]
	if !waitsBehind(s, next) {
		t.Error("it begins while the container has ended")
	}
	next.Spec.Strategy.ForceRecreate = false
	if waitsBehind(s, next) {
		t.Error("one without force waits")
	}
	s.Containers = []runtime.Container{run("a", 1)}
	next.Spec.Strategy.ForceRecreate = true
	if waitsBehind(s, next) {
		t.Error("it waits although the container runs again")
	}
}

// waitsBehind reports whether a request does not begin while another one is as in the snapshot.
func waitsBehind(s Snapshot, next *appsv1beta1.ContainerRecreateRequest) bool {
	plan, before := NewPlan(s), &earlier{}
	before.add(&plan)
	return before.keeps(next)
}

func hasBegun(r *appsv1beta1.ContainerRecreateRequest) bool { return r.Status.Phase == recreating }
