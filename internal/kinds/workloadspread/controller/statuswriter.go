package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// StatusWriter writes the status of WorkloadSpreads, one writer of an object at a time in this process (WS-110).
type StatusWriter interface {
	// WriteStatus calls decide with the newest version of the WorkloadSpread that is known, and patches the status with the JSON
	// merge patch that it returns, which is guarded by the resourceVersion of that version; nil writes nothing. After a conflict it
	// does so again with a version that it reads from the API server. An error of decide ends it. It returns what the API server
	// answered, nil if nothing was written.
	WriteStatus(ctx context.Context, spread *appsv1beta1.WorkloadSpread, decide func(newest *appsv1beta1.WorkloadSpread) ([]byte,
		error)) (*appsv1beta1.WorkloadSpread, error)
}

// SpreadClient reads and writes WorkloadSpreads.
type SpreadClient interface {
	// GetSpread reads from the API server.
	GetSpread(ctx context.Context, name types.NamespacedName) (*appsv1beta1.WorkloadSpread, error)
	// PatchSpreadStatus sends a JSON merge patch to the status.
	PatchSpreadStatus(ctx context.Context, spread *appsv1beta1.WorkloadSpread, body []byte) (*appsv1beta1.WorkloadSpread, error)
}

// statusAttempts bounds how often a status is tried to be written in one pass while others book in it.
const statusAttempts = 4

// PlainStatusWriter is a StatusWriter for a process in which nobody else writes: it takes no lock.
type PlainStatusWriter struct{ Client SpreadClient }

var _ StatusWriter = PlainStatusWriter{}

// WriteStatus implements StatusWriter.
func (w PlainStatusWriter) WriteStatus(ctx context.Context, spread *appsv1beta1.WorkloadSpread,
	decide func(newest *appsv1beta1.WorkloadSpread) ([]byte, error)) (*appsv1beta1.WorkloadSpread, error) {
	newest := spread
	for attempt := 1; ; attempt++ {
		body, err := decide(newest)
		if err != nil || body == nil {
			return nil, err
		}
		written, err := w.Client.PatchSpreadStatus(ctx, newest, body)
		if err == nil {
			return written, nil
		}
		if !apierrors.IsConflict(err) || attempt == statusAttempts {
			return nil, fmt.Errorf("patching: %w", err)
		}
		if newest, err = w.Client.GetSpread(ctx, types.NamespacedName{Namespace: spread.Namespace, Name: spread.Name}); err != nil {
			return nil, fmt.Errorf("reading after a conflict: %w", err)
		}
	}
}

// SharedStatusWriter is a StatusWriter beside a Booker of the same process: it takes the Booker's lock, begins with what was written last
// under it, and leaves there what it writes (WS-110, WS-111).
type SharedStatusWriter struct {
	Booker *Booker
	Client SpreadClient
}

var _ StatusWriter = SharedStatusWriter{}

// WriteStatus implements StatusWriter.
func (w SharedStatusWriter) WriteStatus(ctx context.Context, spread *appsv1beta1.WorkloadSpread,
	decide func(newest *appsv1beta1.WorkloadSpread) ([]byte, error)) (*appsv1beta1.WorkloadSpread, error) {
	var written *appsv1beta1.WorkloadSpread
	err := w.Booker.Locked(ctx, spread.UID, func() (*appsv1beta1.WorkloadSpread, error) {
		newest := spread
		if last := w.Booker.room(spread.UID).last; last != nil && older(newest, last) {
			newest = last
		}
		var err error
		written, err = PlainStatusWriter{w.Client}.WriteStatus(ctx, newest, decide)
		return written, err
	})
	return written, err
}
