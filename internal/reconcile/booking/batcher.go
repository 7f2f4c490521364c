// Package booking writes decisions about single requests, such as those of webhooks, into the status of an
// object that they share.
//
// Correctness rests on the version that guards each write, however many managers book: a decision counts only
// if the object still has the version that it was made from. Within a process the decisions about one object
// are made one after the other, each on the result of those before it, and the requests that wait meanwhile
// share the next write.
//
// An answer may be lost after the write has been done. The next attempt reads the object and decides again,
// so the function that decides must recognize there what it has already booked.
package booking

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/reconcile"
)

var (
	// ErrNotBooked means that the booking was not made, or that it is not known whether it was made.
	ErrNotBooked = errors.New("the status cannot be written")
	// ErrBusy means that a request was not booked because too many others wait before it.
	ErrBusy = errors.New("too many requests wait for the same status")
	// ErrGone means that the object does not exist any more, or is being deleted.
	ErrGone = errors.New("the object is gone")
	// ErrReplaced is an [ErrGone] that means that another object has the name now.
	ErrReplaced = fmt.Errorf("%w, and a new one has its name", ErrGone)
	// ErrBehind means that the caches do not show yet that an object is gone, nor what may have taken its place.
	ErrBehind = errors.New("the caches are behind")
	// ErrStale is returned by the function that decides, to be called again with an object that is at least
	// as new as the request.
	ErrStale = errors.New("the object may be older than the request")
)

// Object is a pointer to an object of type T.
type Object[T any] interface {
	*T
	client.Object
}

// Options are the options of a StatusBatcher. D is the draft of a kind: an object with the changes of a batch
// of decisions.
type Options[T any, P Object[T], D any] struct {
	// Client writes, and Live reads from the API server.
	Client client.SubResourceClientConstructor
	Live   client.Reader
	// Cached returns the object in the informer, nil if there is none. The object is not changed.
	Cached func(types.NamespacedName) P
	Now    func() time.Time
	// Begin makes a draft. Changing the draft must not change the object. ctx is that of one request of the
	// batch.
	Begin func(ctx context.Context, object P) D
	// Changes returns the fields of the status that a draft changes, as a JSON merge patch. Nothing is
	// written if there are none.
	Changes func(draft D) map[string]any
	// Backoff defines the wait after each failed attempt; its steps are the number of attempts. A request
	// ends earlier if its context does.
	Backoff wait.Backoff
	// Batch is the maximum number of requests that share a write. Waiting is the maximum number that wait for
	// one object, beside those whose write is under way. 0 means no limit.
	Batch, Waiting int
	// Writes counts the attempts to write by result: written, conflict, failed.
	Writes *prometheus.CounterVec
}

// StatusBatcher books in the status of the objects of one kind.
type StatusBatcher[T any, P Object[T], D any] struct {
	options Options[T, P, D]

	mu     sync.Mutex
	queues map[types.UID]*queue[T, P, D]
}

// New returns a StatusBatcher with these options.
func New[T any, P Object[T], D any](options Options[T, P, D]) *StatusBatcher[T, P, D] {
	return &StatusBatcher[T, P, D]{options: options, queues: map[types.UID]*queue[T, P, D]{}}
}

// Decide calls decide with a draft of the object, and returns once the changes of the draft are written, by
// this request or by another one of the same batch. After each failed attempt it calls decide again, with a
// draft of the state in the API server. If decide returns an error it must have changed nothing. Do returns
// that error once the state that it was based on is written. age is how long before the request others may
// have changed the object without the draft showing it; it is 0 if the draft is at least as new as the
// request. If it is not 0, decide may return [ErrStale] to have the object read. decide is not called any
// more once Do has returned.
//
// Other errors are [ErrGone], [ErrBusy], and [ErrNotBooked] after the last attempt or when ctx ends.
func (d *StatusBatcher[T, P, D]) Decide(ctx context.Context, object P,
	decide func(draft D, age time.Duration) error) error {
	k := &request[D]{
		done: ctx.Done(), arrived: d.options.Now(), decide: decide, answered: make(chan struct{}),
	}
	r := d.acquire(object.GetUID())
	defer d.release(object.GetUID(), r)
	if !r.wait(k, d.options.Waiting) {
		return ErrBusy
	}

	for {
		select {
		case <-k.answered:
			return k.err
		default:
		}
		select {
		case <-k.answered:
			return k.err
		case <-ctx.Done():
			r.cancel(k)
			return fmt.Errorf("%w in time: %w", ErrNotBooked, ctx.Err())
		case r.lock <- struct{}{}:
			d.serve(ctx, r, object)
		}
	}
}

// Newest returns the newer of the object and of what was read or written here last. While a write is under
// way it returns the object, since callers accept a state of any age.
func (d *StatusBatcher[T, P, D]) Newest(object P) P {
	r := d.acquire(object.GetUID())
	defer d.release(object.GetUID(), r)
	select {
	case r.lock <- struct{}{}:
		defer func() { <-r.lock }()
		return r.newest(object)
	default:
		return object
	}
}

// serve decides about the waiting requests. It always gives back the lock of the room.
func (d *StatusBatcher[T, P, D]) serve(ctx context.Context, r *queue[T, P, D], of P) {
	batch, ended := r.next(d.options.Batch), false
	defer func() {
		if !ended { // a decision panicked
			answer(batch, fmt.Errorf("%w: the decision about another request failed", ErrNotBooked))
		}
		<-r.lock
	}()
	if len(batch) > 0 && !d.pass(ctx, r, of, batch) {
		r.giveBack(batch) // this request has no time left, so another one serves the others
	}
	ended = true
}

// pass decides about a batch, writes it and answers it. It returns false if its context ends before that. The
// caller holds the lock of the room.
func (d *StatusBatcher[T, P, D]) pass(ctx context.Context, r *queue[T, P, D], of P, batch []*request[D]) bool {
	live, backoff := r.doubt, d.options.Backoff
	for attempt := 1; ; attempt++ {
		err := d.attempt(ctx, r, of, batch, live)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case attempt >= d.options.Backoff.Steps:
			answer(batch, fmt.Errorf("%w in %d attempts: %w", ErrNotBooked, attempt, err))
			return true
		}

		live = true
		pause := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
			pause.Stop()
			return false
		case <-pause.C:
		}
	}
}

// attempt reads, decides, writes and answers once. live makes it read the object from the API server. If it
// returns an error, no request has been answered.
func (d *StatusBatcher[T, P, D]) attempt(ctx context.Context, r *queue[T, P, D], of P,
	batch []*request[D], live bool) error {
	object, err := d.read(ctx, r, of, live)
	if err != nil {
		return err
	}
	switch {
	case object == nil || object.GetDeletionTimestamp() != nil:
		answer(batch, ErrGone)
		return nil
	case object.GetUID() != of.GetUID():
		answer(batch, ErrReplaced)
		return nil
	}

	draft := d.options.Begin(ctx, object)
	if err := ctx.Err(); err != nil { // the draft may be incomplete
		return err
	}

	for _, k := range batch {
		age := time.Duration(0)
		if !live {
			age = max(k.arrived.Sub(r.currentAt), 0)
		}
		if k.err = k.ask(draft, age); errors.Is(k.err, ErrStale) && age > 0 {
			return d.attempt(ctx, r, of, batch, true)
		}
	}

	if changes := d.options.Changes(draft); len(changes) > 0 {
		if err := d.write(ctx, r, object, changes); err != nil {
			return err
		}
	}
	answer(batch, nil)
	return nil
}

// read returns the newer of what was written here last and of the informer's copy, or the state in the API
// server if live is set. It returns nil if the object is gone, or the one that has its name now.
func (d *StatusBatcher[T, P, D]) read(ctx context.Context, r *queue[T, P, D], of P, live bool) (P, error) {
	key := client.ObjectKeyFromObject(of)
	if !live {
		if cached := d.options.Cached(key); cached != nil && cached.GetUID() == of.GetUID() {
			return r.newest(cached), nil
		}
		if r.last != nil {
			return r.last, nil
		}
	}

	begin, found := d.options.Now(), P(new(T))
	err := d.options.Live.Get(ctx, key, found)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading %s %s: %w", kind[T](), key, err)
	}
	if err != nil {
		found = nil
	} else if found.GetUID() != of.GetUID() {
		return found, nil
	}

	r.last, r.currentAt, r.doubt = found, begin, false
	return found, nil
}

// write patches the status of exactly this version of the object, and counts the result.
func (d *StatusBatcher[T, P, D]) write(ctx context.Context, r *queue[T, P, D], object P, changes map[string]any) error {
	body, err := reconcile.MergePatch(object, nil, map[string]any{"status": changes})
	if err != nil {
		return err
	}

	_, err = d.patch(ctx, r, object, body)
	result := "written"
	switch {
	case apierrors.IsConflict(err):
		result = "conflict"
	case err != nil:
		result = "failed"
	}

	d.options.Writes.WithLabelValues(result).Inc()
	return err
}

func (d *StatusBatcher[T, P, D]) patch(ctx context.Context, r *queue[T, P, D], object P, body []byte) (P, error) {
	begin, written := d.options.Now(), P(new(T))
	written.SetNamespace(object.GetNamespace())
	written.SetName(object.GetName())
	if err := d.options.Client.SubResource("status").
		Patch(ctx, written, client.RawPatch(types.MergePatchType, body)); err != nil {
		r.doubt = true
		return nil, fmt.Errorf("patching the status of %s %s: %w",
			kind[T](), client.ObjectKeyFromObject(object), err)
	}
	r.last, r.currentAt = written, begin // this was the newest version when it replaced the one before

	return written, nil
}

func kind[T any]() string { return reflect.TypeFor[T]().Name() }
