package reconcile

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A controller that was started and whose workers never come to work is named, and one that works is not,
// although nothing happens to its objects; its pass is never called for the request by which it shows that.
func TestControllersThatDoNotWorkAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pulse := NewPulse(clock.RealClock{}, 2*time.Minute)
		for _, name := range []string{"working", "waiting"} {
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
			if err := pulse.source(name).Start(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
			if name == "waiting" {
				queue.ShutDown()
				continue
			}
			answers := pulse.of(name, reconcile.Func(func(_ context.Context, request ctrl.Request) (ctrl.Result, error) {
				t.Errorf("a pass is called for %v, want none", request)
				return ctrl.Result{}, nil
			}))
			go func() {
				for {
					request, ended := queue.Get()
					if ended {
						return
					}
					result, err := answers.Reconcile(t.Context(), request)
					queue.Done(request)
					if err != nil {
						t.Errorf("the answer to %v: %v", request, err)
					}
					if result.RequeueAfter <= 0 {
						t.Errorf("%v comes back after %s, want a later time", request, result.RequeueAfter)
					}
					queue.AddAfter(request, result.RequeueAfter)
				}
			}()
			defer queue.ShutDown()
		}
		time.Sleep(time.Minute)
		if silent := pulse.Silent(); len(silent) != 0 {
			t.Errorf("silent controllers after a minute: got %v, want none", silent)
		}
		if idle := pulse.Idle(); idle != 0 {
			t.Errorf("idle controllers after a minute: got %d, want 0", idle)
		}
		time.Sleep(time.Hour)
		if silent := pulse.Silent(); !slices.Equal(silent, []string{"waiting"}) {
			t.Errorf("silent controllers after an hour: got %v, want the waiting one", silent)
		}
	})
}
