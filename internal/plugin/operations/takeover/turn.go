package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// turnName is the Lease that allows only one takeover, in either direction, to write at a time.
const turnName = "afloat-takeover"

// takeTurn acquires the Lease. It returns a context that is cancelled if somebody else acquires the Lease,
// and a function that releases it. If a run was killed, takeTurn waits until the Lease has not been renewed
// for its duration, by the clock of this machine only.
func (t *takeover) takeTurn(ctx context.Context) (context.Context, func(), error) {
	var last string
	var since time.Time
	for {
		lease, err := installation.Get(ctx, t.client, installation.Leases, t.choice.Namespace, turnName)
		if err != nil {
			return nil, nil, err
		}

		if lease == nil {
			err = t.client.Create(ctx, t.turn(nil), client.FieldOwner(t.fieldManager))
		} else {
			holder := installation.Text(lease.Object, "spec", "holderIdentity")
			seconds, _, _ := unstructured.NestedInt64(lease.Object, "spec", "leaseDurationSeconds")
			renewed := holder + installation.Text(lease.Object, "spec", "renewTime")
			switch {
			case last == "":
				last, since = renewed, time.Now()
				fmt.Fprintf(t.ErrOut,
					"   waiting for another takeover, of %s, unless it was killed: it would hold Lease %s/%s for %d s\n",
					holder, t.choice.Namespace, turnName, seconds)
			case renewed != last:
				return nil, nil, fmt.Errorf(
					"another takeover is under way, of %s (Lease %s/%s): nothing was changed by this one",
					holder, t.choice.Namespace, turnName)
			}
			if time.Since(since) >= time.Duration(seconds)*time.Second {
				// The update is guarded by the resourceVersion that was read.
				err = t.client.Update(ctx, t.turn(lease), client.FieldOwner(t.fieldManager))
			} else {
				err = errHeld
			}
		}

		switch {
		case err == nil:
			renewing, lost := context.WithCancelCause(ctx)
			held := &heldTurn{Client: t.client, takeover: t, lost: lost, renewed: time.Now()}
			t.client = held
			done := make(chan struct{})
			go held.renewAll(renewing, done)
			return renewing, func() {
				lost(nil)
				<-done
				t.client = held.Client
				t.giveTurn(ctx)
			}, nil

		case !errors.Is(err, errHeld) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err):
			return nil, nil, fmt.Errorf("taking Lease %s/%s, so that no other takeover runs at once: %w",
				t.choice.Namespace, turnName, err)
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(t.poll):
		}
	}
}

var errHeld = errors.New("it is held")

// turn returns the Lease held by this run, as a replacement of the live one.
func (t *takeover) turn(live *unstructured.Unstructured) *unstructured.Unstructured {
	now := time.Now().UTC().Format(metav1.RFC3339Micro)
	lease := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": t.choice.Namespace, "name": turnName},
		"spec": map[string]any{"holderIdentity": t.holder,
			"leaseDurationSeconds": int64(max(1, t.turnFor.Seconds())), "acquireTime": now,
			"renewTime": now}}}
	lease.SetGroupVersionKind(installation.Leases)
	if live != nil {
		lease.SetUID(live.GetUID())
		lease.SetResourceVersion(live.GetResourceVersion())
	}
	return lease
}

// giveTurn releases the Lease, even after Ctrl-C.
func (t *takeover) giveTurn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	lease, err := installation.Get(ctx, t.client, installation.Leases, t.choice.Namespace, turnName)
	if err == nil && lease != nil && installation.Text(lease.Object, "spec", "holderIdentity") == t.holder {
		uid := lease.GetUID()
		err = client.IgnoreNotFound(t.client.Delete(ctx, lease, client.Preconditions{UID: &uid}))
	}
	if err != nil {
		t.say("Lease %s/%s was not given back, and holds for %s: %v", t.choice.Namespace, turnName, t.turnFor,
			err)
	}
}

// unchanged returns an error if the manager has changed since it was inspected, while the user was being
// asked.
func (t *takeover) unchanged(ctx context.Context, seen *unstructured.Unstructured) error {
	live, err := t.get(ctx, t.managerReference())
	if err != nil {
		return err
	}

	switch {
	case live == nil && (seen == nil || seen.GetResourceVersion() == ""): // see removedManager
		return nil
	case live == nil || seen == nil:
		return fmt.Errorf("nothing was changed: Deployment %s came or went meanwhile: run the command again",
			installation.Manager)
	case live.GetUID() != seen.GetUID(), live.GetGeneration() != seen.GetGeneration(),
		installation.IsOurs(live) != installation.IsOurs(seen),
		live.GetAnnotations()[backupAnnotation] != seen.GetAnnotations()[backupAnnotation]:
		return fmt.Errorf("nothing was changed: somebody has changed %s meanwhile, perhaps another takeover: run the command again",
			installation.Of(live))
	}

	return nil
}
