package takeover

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Somebody closes the laptop while the takeover runs on it. A colleague sees that nobody serves, waits until the
// Lease afloat-takeover has expired, and goes back, which succeeds. Then the laptop is opened: its run lost its
// turn, and writes nothing any more.
func TestARunThatLostItsTurnWritesNothing(t *testing.T) {
	w := newWorld(t, "")
	w.manifests = withoutSchemas(t)
	before := w.state()
	folder := filepath.Join(t.TempDir(), "backup")

	sleeps, returned := sync.Once{}, 0
	laptop := w.command(folder, io.Discard)
	// No renewal is due at the moment at which it wakes up.
	laptop.turnFresh = time.Second / 2
	laptop.client = interceptor.NewClient(w, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			err := c.Apply(ctx, o, options...)
			if (&client.ApplyOptions{}).ApplyOptions(options).DryRun == nil {
				sleeps.Do(func() {
					colleague := w.command(folder, io.Discard)
					colleague.back, colleague.holder = true, "colleague"
					if err := colleague.run(context.Background()); err != nil {
						t.Errorf("the colleague cannot go back: %v", err)
					}
					if different := differences(before, w.state()); len(different) > 0 {
						t.Errorf("the way back: %q", different)
					}
					w.mu.Lock()
					returned = len(w.written)
					w.mu.Unlock()
				})
			}
			return err
		},
	})
	err := laptop.run(t.Context())
	t.Log("the run on the laptop:", err)
	var names []string
	for _, write := range w.written[returned:] {
		if !strings.Contains(write, turnName) {
			names = append(names, write)
		}
	}
	if len(names) > 0 {
		t.Errorf("written after the other run had taken the Lease, gone back, and ended: %d times: %s", len(names), strings.Join(names, ", "))
	}
	if different := differences(before, w.state()); len(different) > 0 {
		t.Errorf("OpenKruise runs again, and %d objects are not its own", len(different))
	}
}
