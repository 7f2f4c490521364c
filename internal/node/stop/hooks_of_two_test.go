package stop

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// draining is a runtime whose preStop hooks need 20 s.
type draining struct {
	mu           sync.Mutex
	drained, cut int
}

func (d *draining) Exec(ctx context.Context, _ string, _ []string, _ time.Duration) error {
	select {
	case <-time.After(20 * time.Second):
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		d.cut++
		return ctx.Err()
	}
	d.drained++
	return nil
}

func (d *draining) Stop(context.Context, string, time.Duration) error { return nil }

// ND-039, CRR-101: two tenants restart as many containers of a node at once as each may, 32, with preStop hooks that need 20 of
// the 30 s of their grace period. All hooks come to their end.
func TestHooksOfTwoNamespacesComeToTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &draining{}
		stopper := &Stopper{Events: record.NewFakeRecorder(1000), Clock: clock.RealClock{}, Stops: NewStops(), Places: NewPlaces(), Requester: "crr"}
		hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"drain"}}}
		var all sync.WaitGroup
		for n := range 2 * Most {
			q := request(hook, 30*time.Second)
			q.Container.ID, q.Container.PodNamespace = fmt.Sprintf("containerd://c%d", n), fmt.Sprintf("tenant-%d", n/Most)
			all.Add(1)
			if !stopper.Start(t.Context(), d, q, func(error) { all.Done() }) {
				t.Fatal("not begun")
			}
		}
		all.Wait()
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.drained != 2*Most {
			t.Errorf("hooks that came to their end: got %d of %d; %d were cut", d.drained, 2*Most, d.cut)
		}
	})
}
