package matchconditions

import (
	"context"
	"sync"
	"time"
)

// Together lets concurrent callers with the same key share the result of one call, which begins after all of
// them called. The zero value is ready to use. Nothing is kept of a key after its calls have returned.
type Together[K comparable, V any] struct {
	// Limit is how long a call may take; zero means no limit.
	Limit time.Duration

	mu   sync.Mutex
	keys map[K]*asked[V]
}

type asked[V any] struct{ next *answer[V] }

type answer[V any] struct {
	done  chan struct{}
	value V
	err   error
}

// Do returns what a call of do returns that began after Do was called. The end of the context ends the
// waiting, but not the call, since others wait for it too.
func (t *Together[K, V]) Do(ctx context.Context, key K, do func(context.Context) (V, error)) (V, error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys = map[K]*asked[V]{}
	}
	at := t.keys[key]
	if at == nil {
		at = &asked[V]{}
		t.keys[key] = at
		go t.work(context.WithoutCancel(ctx), key, do)
	}
	if at.next == nil {
		at.next = &answer[V]{done: make(chan struct{})}
	}
	mine := at.next
	t.mu.Unlock()

	select {
	case <-mine.done:
		return mine.value, mine.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// work calls do until nobody waits for the key.
func (t *Together[K, V]) work(ctx context.Context, key K, do func(context.Context) (V, error)) {
	for {
		t.mu.Lock()
		next := t.keys[key].next
		if next == nil {
			delete(t.keys, key)
			t.mu.Unlock()
			return
		}
		t.keys[key].next = nil
		t.mu.Unlock()
		next.value, next.err = t.call(ctx, do)
		close(next.done)
	}
}

func (t *Together[K, V]) call(ctx context.Context, do func(context.Context) (V, error)) (V, error) {
	if t.Limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.Limit)
		defer cancel()
	}
	return do(ctx)
}
