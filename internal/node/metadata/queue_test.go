package metadata

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
)

// endless is a runtime whose containers do not end before the channel is closed.
type endless chan struct{}

func (e endless) Stop(context.Context, string, time.Duration) error { <-e; return nil }

func (e endless) Exec(context.Context, string, []string, time.Duration) error {
	return nil
}

// ND-112 (part): a restart that waits for other stops of its namespace sends no requests to the API server
// meanwhile.
func TestARestartThatWaitsForItsNamespaceSendsNothing(t *testing.T) {
	asked := 0
	live := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, o ...client.GetOption) error {
			asked++
			return c.Get(ctx, key, object, o...)
		}})
	q := newRestarter(&reconciler{live: live, clock: clock.RealClock{},
		Options: Options{Events: record.NewFakeRecorder(100), Stops: stop.NewStops()}})
	rt, ended := endless(make(chan struct{})), make(chan error, stop.Most)
	for range stop.Most {
		q.stopper.Start(t.Context(), rt,
			stop.Request{Container: runtime.Container{PodNamespace: "hostile"}, Check: func(context.Context) error { return nil }},
			func(err error) { ended <- err })
	}
	begun, err := q.restart(t.Context(), target{Pod: types.NamespacedName{Namespace: "hostile", Name: "p"}}, nil)
	if err != nil {
		t.Errorf("a restart that waits for its namespace: %v", err)
	}
	if begun {
		t.Error("a restart that waits for its namespace has begun")
	}
	if asked > 0 {
		t.Errorf("requests to the API server of a restart that waits: got %d, want 0", asked)
	}
	close(rt)
	for range stop.Most {
		if err := <-ended; err != nil {
			t.Errorf("a stop that was under way: %v", err)
		}
	}
}
