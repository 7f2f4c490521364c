package metadata

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

// ND-112 (part): one tenant has more containers to restart than there are workers, and they do not end. The
// restart of another tenant's container begins at once nevertheless.
func TestEnvironmentRestartsOfOneTenantDoNotHoldUpThoseOfAnother(t *testing.T) {
	w := newWorld(t, pod("b", updatingPod))
	releaseOrphans, called := make(chan struct{}), make(chan struct{}, 1)
	w.cri.Set(func(s *fakecri.Server) {
		s.OnStop = func(ctx context.Context, c fakecri.Container, _ time.Duration) error {
			select {
			case called <- struct{}{}:
			default:
			}
			if c.Namespace == "hostile" {
				select {
				case <-releaseOrphans:
				case <-ctx.Done():
				}
			}
			return nil
		}
	})
	add := func(namespace, uid string) target {
		p := pod("b", updatingPod)
		p.Namespace, p.UID = namespace, types.UID(uid)
		if namespace != "ns" {
			p.Name = uid
			if err := w.api.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		w.cri.Add(fakecri.Container{ID: "app-" + uid, Name: "app", Namespace: namespace, Pod: p.Name, UID: uid,
			State:   cri.ContainerState_CONTAINER_RUNNING,
			Created: time.Unix(1, 0), Hash: fmt.Sprintf("%x", number(inplace.PlainHash("app", "app:1"))), Image: "app:1",
			Env: []string{"V=a"}})
		return target{types.NamespacedName{Namespace: namespace, Name: p.Name}, p.UID, "app", "containerd://app-" + uid}
	}
	restarts := w.r.restarts
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
	}()
	all.Go(func() { _ = restarts.Start(ctx) })
	stopped := func(id string) bool {
		return slices.ContainsFunc(w.cri.Calls("StopContainer"), func(c fakecri.Call) bool { return id == "" || c.ID == id })
	}
	until := func(what string, condition func() bool) {
		t.Helper()
		for end := time.After(30 * time.Second); !condition(); {
			select {
			case <-called:
			case <-end:
				t.Fatalf("not within 30 s: %s", what)
			}
		}
	}
	for i := range workers {
		restarts.queue.Add(add("hostile", fmt.Sprintf("h%d", i)))
	}
	until("the hostile containers are being stopped", func() bool { return len(w.cri.Calls("StopContainer")) == workers })
	begin := time.Now()
	restarts.queue.Add(add("ns", "u"))
	until("the container of another tenant is stopped", func() bool { return stopped("app-u") })
	t.Logf("the restart of another tenant began after %s", time.Since(begin).Round(time.Millisecond))
	close(releaseOrphans)
}
