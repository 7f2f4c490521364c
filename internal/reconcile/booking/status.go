package booking

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/afloat-project/afloat/internal/reconcile"
)

// statusAttempts is how often a controller tries to write a status in one pass while others book in it.
const statusAttempts = 4

// WriteStatus writes a status on behalf of the controller, whose writes take their turn with the bookings. It
// calls decide with the newest known version of the object, and patches the status with the JSON merge patch
// that decide returns, which must be guarded by that version; nil writes nothing. After a conflict it reads
// the object from the API server and calls decide again. An error of decide ends it. WriteStatus returns the
// answer of the API server, nil if nothing was written. The next booking is based on that answer.
func (d *StatusBatcher[T, P, D]) WriteStatus(
	ctx context.Context, object P, decide func(newest P) ([]byte, error),
) (P, error) {
	r := d.acquire(object.GetUID())
	defer d.release(object.GetUID(), r)
	select {
	case r.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for other writes of the status: %w", ctx.Err())
	}

	defer func() { <-r.lock }()

	newest := r.newest(object)

	for attempt := 1; ; attempt++ {
		body, err := decide(newest)
		if err != nil || body == nil {
			return nil, err
		}
		written, err := d.patch(ctx, r, newest, body)
		if err == nil || !apierrors.IsConflict(err) || attempt == statusAttempts {
			return written, err
		}
		if newest, err = d.read(ctx, r, object, true); err != nil {
			return nil, fmt.Errorf("after a conflict: %w", err)
		}
		if newest == nil {
			return nil, reconcile.ErrStalePlan
		}
	}
}
