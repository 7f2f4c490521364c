package takeover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// heldTurn is a client that writes only while the run has its turn. The machine may have slept, or its network may have been
// away, for longer than the Lease holds: somebody else may have taken it then, and have gone back meanwhile. Therefore a write
// renews the Lease first if that was not done lately.
type heldTurn struct {
	client.Client
	takeover *takeover
	// lost ends the run, which was taken for dead.
	lost context.CancelCauseFunc

	mu sync.Mutex
	// renewed is when the Lease was last renewed.
	renewed time.Time
}

var errTurnLost = errors.New("another takeover has taken its turn")

// renewAll renews the Lease until the context ends, or the turn is lost.
func (h *heldTurn) renewAll(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	ticker := time.NewTicker(h.takeover.renewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if errors.Is(h.renew(ctx, 0), errTurnLost) { // after any other error the next attempt shows whether the Lease is held
			return
		}
	}
}

// holds returns an error if a write might come when the turn is lost.
func (h *heldTurn) holds(ctx context.Context) error { return h.renew(ctx, h.takeover.turnFresh) }

// renew renews the Lease if it was not renewed for that time. The clock of the machine says how long that is, since no other
// goes on while it sleeps; a clock that was set back says nothing.
func (h *heldTurn) renew(ctx context.Context, after time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if age := now.Round(0).Sub(h.renewed.Round(0)); age >= 0 && age < after {
		return nil
	}
	t := h.takeover
	lease, err := installation.Get(ctx, h.Client, installation.Leases, t.choice.Namespace, turnName)
	if err != nil {
		return err
	}
	if lease == nil || installation.Text(lease.Object, "spec", "holderIdentity") != t.holder {
		err := fmt.Errorf("%w (Lease %s/%s)", errTurnLost, t.choice.Namespace, turnName)
		h.lost(err)
		return err
	}
	if err := h.Client.Update(ctx, t.turn(lease), client.FieldOwner(t.fieldManager)); err != nil {
		return fmt.Errorf("renewing Lease %s/%s: %w", t.choice.Namespace, turnName, err)
	}
	h.renewed = now
	return nil
}

// Create is [client.Writer].Create, while the run has its turn.
func (h *heldTurn) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if err := h.holds(ctx); err != nil {
		return err
	}
	return h.Client.Create(ctx, object, options...) //nolint:wrapcheck // as the client that it wraps
}

// Update is [client.Writer].Update, while the run has its turn.
func (h *heldTurn) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	if err := h.holds(ctx); err != nil {
		return err
	}
	return h.Client.Update(ctx, object, options...) //nolint:wrapcheck // as the client that it wraps
}

// Delete is [client.Writer].Delete, while the run has its turn.
func (h *heldTurn) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if err := h.holds(ctx); err != nil {
		return err
	}
	return h.Client.Delete(ctx, object, options...) //nolint:wrapcheck // as the client that it wraps
}

// Apply is [client.Writer].Apply, while the run has its turn.
func (h *heldTurn) Apply(ctx context.Context, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if err := h.holds(ctx); err != nil {
		return err
	}
	return h.Client.Apply(ctx, object, options...) //nolint:wrapcheck // as the client that it wraps
}

// Patch is [client.Writer].Patch, while the run has its turn.
func (h *heldTurn) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := h.holds(ctx); err != nil {
		return err
	}
	return h.Client.Patch(ctx, object, patch, options...) //nolint:wrapcheck // as the client that it wraps
}

// Status is [client.Client].Status, whose updates are made while the run has its turn.
func (h *heldTurn) Status() client.SubResourceWriter { return heldStatus{h.Client.Status(), h} }

type heldStatus struct {
	client.SubResourceWriter
	turn *heldTurn
}

// Update is [client.SubResourceWriter].Update, while the run has its turn.
func (s heldStatus) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	if err := s.turn.holds(ctx); err != nil {
		return err
	}
	return s.SubResourceWriter.Update(ctx, object, options...) //nolint:wrapcheck // as the client that it wraps
}
