package reconcile

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// OPS-028 (part): no object is worked on before the caches of a new leader show what was stored.
func TestNoPassBeforeTheCachesAreCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, passes := make(chan struct{}), 0
		asked := 0
		current := func(ctx context.Context) error {
			asked++
			select {
			case <-begun:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r := after(current, reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
			passes++
			return ctrl.Result{}, nil
		}))
		ended, end := context.WithCancel(t.Context())
		end()
		if _, err := r.Reconcile(ended, pulse); !errors.Is(err, context.Canceled) {
			t.Errorf("a manager that ends: got %v, want %v", err, context.Canceled)
		}
		answered := make(chan error, 1)
		go func() {
			_, err := r.Reconcile(t.Context(), pulse)
			answered <- err
		}()
		if synctest.Wait(); passes > 0 {
			t.Error("an object was worked on")
		}
		close(begun)
		if err := <-answered; err != nil || passes != 1 {
			t.Errorf("after that: %d passes, %v", passes, err)
		}
		if _, err := r.Reconcile(t.Context(), pulse); err != nil || passes != 2 || asked != 2 {
			t.Errorf("the next one: %d passes, asked %d times whether caches are current, %v", passes, asked, err)
		}
	})
}
