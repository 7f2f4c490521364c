package restart

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/node/runtime"
)

// unreadable is a runtime that cannot inspect container a once it has ended (its shim is broken), and works else.
type unreadable struct{ *world }

func (u unreadable) Status(ctx context.Context, id string) (runtime.Status, error) {
	if id == "containerd://a-0" {
		return runtime.Status{}, errors.New("inspecting container a-0: rpc error: code = Unknown desc = failed to load task: broken shim")
	}
	return u.world.Status(ctx, id)
}

// CRR-126, failurePolicy Ignore: one container of which the runtime cannot tell anything does not keep the others from
// being stopped.
func TestOneContainerThatCannotBeInspectedHoldsUpNoOther(t *testing.T) {
	w, now := quiet(t, ignore)
	w.r.runtimeOf = func(string) (Runtime, error) { return unreadable{w}, nil }
	for range 30 {
		w.clock.Step(time.Minute)
		_ = w.rounds(1)
	}
	for _, c := range w.containers {
		if c.ID == "containerd://b-0" && c.Running {
			t.Errorf("half an hour later container b was not stopped: %+v", now().Status)
		}
	}
}
