package probe

import (
	"sync"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

// containerd hangs for some time (its disk stalls) and answers no call, not even that of a command whose timeout is
// one second. That says nothing about the containers (PPM-091), and kubelet would wait for two minutes. A liveness
// probe that fails now restarts all containers of the node as soon as containerd is back.
func TestARuntimeThatHangsFailsNoLivenessProbe(t *testing.T) {
	s := fakecri.Start(t)
	over := make(chan struct{})
	s.Set(func(s *fakecri.Server) {
		s.OnExec = func(string, []string) (string, int32, error) { <-over; return "", 0, nil }
	})
	t.Cleanup(func() { close(over) })
	s.Add(fakecri.Container{ID: "c", UID: "pod", Name: "app", State: cri.ContainerState_CONTAINER_RUNNING})
	set := runtime.NewSet(runtime.Options{Root: s.Root()})
	set.Look(t.Context())
	a := newAttempter(func(id string) (Commands, error) { return set.ForContainer(id) })
	d := definition(func(p *appsv1alpha1.ContainerProbe) { p.Name = "pg-0-app" })
	if !d.liveness() {
		t.Fatal("no liveness probe")
	}
	// The runtime counts the same time, and one of many calls ends a moment before its own timer does.
	begin := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if attempt := a.attempt(t.Context(), &d, "containerd://c"); attempt.Outcome != None {
				t.Errorf("liveness probe while the runtime has not answered for %s: outcome %s (%s), want %s",
					time.Since(begin).Round(time.Second), attempt.Outcome, attempt.Message, None)
			}
		})
	}
	all.Wait()
}
