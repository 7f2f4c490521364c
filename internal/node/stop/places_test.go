package stop

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

// Tenants whose preStop hooks last as long as they like (their pods' grace period is a day) stop containers in
// four namespaces. The exec probes of the other tenants of the node have to go on: hooks take none of their places.
func TestHooksLeavePlacesForProbes(t *testing.T) {
	s := fakecri.Start(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	s.Set(func(s *fakecri.Server) {
		s.OnExec = func(id string, _ []string) (string, int32, error) {
			if id != "victim" {
				<-over
			}
			return "alive", 0, nil
		}
	})
	set := runtime.NewSet(runtime.Options{Root: s.Root()})
	set.Look(t.Context())
	r, err := set.ForContainer("containerd://victim")
	if err != nil {
		t.Fatal(err)
	}
	s.Add(fakecri.Container{ID: "victim", UID: "u", State: cri.ContainerState_CONTAINER_RUNNING})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	events := record.NewFakeRecorder(1000)
	stopper := &Stopper{Events: events, Clock: clock.RealClock{}, Stops: NewStops(), Requester: "containermeta"}
	const hooks = 64
	hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "86400"}}}
	for n := range hooks {
		id := fmt.Sprintf("c%d", n)
		s.Add(fakecri.Container{ID: id, UID: id, State: cri.ContainerState_CONTAINER_RUNNING})
		q := request(hook, 24*time.Hour)
		q.Container.ID, q.Container.PodNamespace = "containerd://"+id, fmt.Sprintf("mallory-%d", n/32)
		if !stopper.Start(ctx, r, q, func(error) {}) {
			t.Fatal("not begun")
		}
	}
	for len(s.Calls("ExecSync")) < hooks {
		time.Sleep(10 * time.Millisecond)
	}
	if output, err := r.Run(t.Context(), "containerd://victim", []string{"alive"}, time.Second); err != nil {
		t.Errorf("exec probe of somebody else: %v", err)
	} else if string(output.Stdout) != "alive" {
		t.Errorf("exec probe of somebody else: got %q", output.Stdout)
	}
}

// ND-039: a namespace alone runs the hooks of all containers that it may stop at once. Further hooks wait until one of
// its places is given back, or until they have no time left.
func TestPlacesOfANamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces()
		const share = hooksAtOnce / 4 // a third of what is left then
		if share < Most {
			t.Fatalf("the share of a namespace alone: got %d, want at least %d", share, Most)
		}
		for n := range share {
			within, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := p.take(within, "shop"); err != nil {
				t.Fatalf("place %d of a namespace alone: %v", n, err)
			}
			cancel()
		}
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.take(within, "shop"); err == nil {
			t.Error("a namespace has more places than its share")
		}
		got := make(chan error)
		go func() { got <- p.take(t.Context(), "shop") }()
		synctest.Wait()
		p.give("shop")
		if err := <-got; err != nil {
			t.Errorf("the place that was given back: %v", err)
		}
	})
}
