package stop

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

// A tenant with two namespaces, whose preStop hooks last as long as he likes (his pods' grace period is a day), restarts
// 32 pods of each on a node. The preStop hook of another tenant's container runs nevertheless when that is restarted,
// and does not fail because of them: otherwise all containers of others are killed with connections open, at the end of
// their grace period.
func TestHooksOfOneTenantKeepNoHookOfAnotherFromRunning(t *testing.T) {
	s := fakecri.Start(t)
	over, ran := make(chan struct{}), make(chan struct{}, 1)
	t.Cleanup(func() { close(over) })
	begun := make(chan struct{}, 2*Most)
	s.Set(func(s *fakecri.Server) {
		s.OnExec = func(id string, _ []string) (string, int32, error) {
			if id == "victim" {
				ran <- struct{}{}
				return "", 0, nil
			}
			begun <- struct{}{}
			<-over
			return "", 0, nil
		}
	})
	set := runtime.NewSet(runtime.Options{Root: s.Root()})
	set.Look(t.Context())
	r, err := set.ForContainer("containerd://victim")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	events := record.NewFakeRecorder(1000)
	stopper := &Stopper{Events: events, Clock: clock.RealClock{}, Stops: NewStops(), Places: NewPlaces(), Requester: "crr"}
	hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"drain"}}}
	start := func(id, namespace string, grace time.Duration, ended func(error)) {
		t.Helper()
		s.Add(fakecri.Container{ID: id, UID: id, State: cri.ContainerState_CONTAINER_RUNNING})
		q := request(hook, grace)
		q.Container.ID, q.Container.PodNamespace = "containerd://"+id, namespace
		if !stopper.Start(ctx, r, q, ended) {
			t.Fatalf("the stop of %s does not begin", id)
		}
	}
	for n := range 2 * Most {
		start(fmt.Sprintf("c%d", n), fmt.Sprintf("mallory-%d", n/Most), 24*time.Hour, func(error) {})
	}
	deadline := time.After(30 * time.Second)
	for most := 2 * Most; most > 0; most-- { // all that may run do
		select {
		case <-begun:
		case <-time.After(time.Second): // the places are fewer than they would take
			most = 0
		case <-deadline:
			t.Fatal("their hooks do not begin")
		}
	}
	ended := make(chan error, 1)
	start("victim", "shop", 2*time.Second, func(err error) { ended <- err })
	if err := <-ended; err != nil {
		t.Errorf("stopping the container of another tenant: %v", err)
	}
	select {
	case <-ran:
	default:
		t.Error("the hook of another tenant's container was not run before that was stopped")
	}
}
