package booking

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/reconcile"
)

// queue is where the decisions about one object are made. It exists while it is in use, and as long as an
// object is remembered there.
type queue[T any, P Object[T], D any] struct {
	// users counts the callers that use the queue; it is guarded by the mutex of the StatusBatcher.
	users int

	// lock is held by the caller that reads, decides and writes.
	lock chan struct{}
	// last is the newest object that was written or read live here, and fresh is when it was certainly the
	// newest version. doubt is true if the outcome of the last write is not known. All three are guarded by
	// lock.
	last      P
	currentAt time.Time
	doubt     bool

	mu      sync.Mutex
	waiting []*request[D]
}

// request waits for its answer. Once done is closed nobody waits for it any more, and nothing may be booked
// for it.
type request[D any] struct {
	done    <-chan struct{}
	arrived time.Time

	// mu is held during the decision.
	mu     sync.Mutex
	decide func(draft D, age time.Duration) error

	answered chan struct{}
	err      error
}

// ask decides about the request, unless nobody waits for it any more.
func (k *request[D]) ask(draft D, age time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended() {
		return context.Canceled
	}
	return k.decide(draft, age)
}

func (k *request[D]) ended() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// answer answers the requests of a batch that have no answer yet, with err if it is not nil and otherwise
// with the decision about each.
func answer[D any](batch []*request[D], err error) {
	for _, k := range batch {
		select {
		case <-k.answered:
		default:
			if err != nil {
				k.err = err
			}
			close(k.answered)
		}
	}
}

// acquire returns the room of an object. The caller must leave it again.
func (d *StatusBatcher[T, P, D]) acquire(uid types.UID) *queue[T, P, D] {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.queues[uid]
	if r == nil {
		r = &queue[T, P, D]{lock: make(chan struct{}, 1)}
		d.queues[uid] = r
	}
	r.users++
	return r
}

func (d *StatusBatcher[T, P, D]) release(uid types.UID, r *queue[T, P, D]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.users--; r.users == 0 && r.last == nil && d.queues[uid] == r {
		delete(d.queues, uid)
	}
}

// Forget drops what is kept about a deleted object. Another object of its name has another UID and starts
// anew.
func (d *StatusBatcher[T, P, D]) Forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.queues, uid)
}

// newest returns the newer of the object and of the remembered one. The caller holds the lock of the room.
func (r *queue[T, P, D]) newest(object P) P {
	if r.last != nil && reconcile.Older(object, r.last) {
		return r.last
	}
	return object
}

// wait adds a request to those that wait. It returns false if limit requests wait already; 0 means no limit.
func (r *queue[T, P, D]) wait(k *request[D], limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if limit > 0 && len(r.waiting) >= limit {
		return false
	}
	r.waiting = append(r.waiting, k)
	return true
}

// giveBack puts a batch back before the other waiting requests. A request that ended meanwhile is dropped,
// because it was not waiting and could not be withdrawn.
func (r *queue[T, P, D]) giveBack(batch []*request[D]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(append(batch, r.waiting...), (*request[D]).ended)
}

// next takes the next batch of at most limit requests; 0 means no limit.
func (r *queue[T, P, D]) next(limit int) []*request[D] {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.waiting)
	if limit > 0 {
		n = min(n, limit)
	}
	batch := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	return batch
}

// cancel removes a request that ends without an answer, once no decision about it is being made.
func (r *queue[T, P, D]) cancel(k *request[D]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(other *request[D]) bool { return other == k })
}
