package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// message is a line of a stream. Its type is in "type".
type message map[string]any

// stream sends messages to one page until the page goes away.
type stream struct {
	out     *json.Encoder
	flush   func() error
	extend  func(time.Time) error
	context context.Context
	stop    context.CancelFunc
}

// patience is for how long a page may take to read what was sent. A page that takes longer is given up, so that
// it does not hold what it has not read.
const patience = 30 * time.Second

// stream begins a stream, and returns false if too many pages are open. The caller calls end.
func (s *server) stream(w http.ResponseWriter, r *http.Request) (*stream, func(), bool) {
	select {
	case s.streams <- struct{}{}:
	default:
		refuse(w, http.StatusTooManyRequests, "%d pages are open: close some", mostStreams)
		return nil, nil, false
	}

	ctx, stop := context.WithCancel(r.Context())
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	st := &stream{out: out, flush: control.Flush, extend: control.SetWriteDeadline, context: ctx, stop: stop}
	st.send(message{"type": "reset"})
	return st, func() { stop(); <-s.streams }, true
}

// send sends messages. The stream ends if the page is gone.
func (s *stream) send(messages ...message) {
	_ = s.extend(time.Now().Add(patience)) // not every writer has deadlines
	for _, m := range messages {
		if s.context.Err() != nil {
			return
		}
		if s.out.Encode(m) != nil {
			s.stop()
			return
		}
	}
	if s.flush() != nil {
		s.stop()
	}
}

// news is what a watch told: an object that is new, changed or gone, that the first list is complete, an error, or
// that requests succeed again after an error.
type news struct {
	object runtime.Object
	gone   bool
	synced bool
	err    error
	well   bool
	listed bool // with an error: the list was to be had, and the watch is not
}

// mayNotWatch reports whether the user may list objects, but not watch them.
func (n *news) mayNotWatch() bool { return n.listed && apierrors.IsForbidden(n.err) }

// lister is what clients have to list and watch objects.
type lister[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// follow watches objects until the context ends, and passes on what changes. slim removes what nobody reads from
// an object.
//
// A list that the user may not make is told as an error, and tried again from time to time.
func follow[L runtime.Object](
	ctx context.Context, from lister[L], example runtime.Object, options metav1.ListOptions,
	slim func(runtime.Object), tell func(news),
) {
	with := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector, o.FieldSelector = options.LabelSelector, options.FieldSelector
		return o
	}
	failing, listed := atomic.Bool{}, atomic.Bool{}
	answered := func(err error) {
		switch {
		case err == nil && failing.CompareAndSwap(true, false):
			tell(news{well: true})
		// The informer tries such watches again without telling.
		case utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err):
			if failing.CompareAndSwap(false, true) {
				tell(news{err: err})
			}
		}
	}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := from.List(ctx, with(o))
			listed.Store(err == nil)
			answered(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			watching, err := from.Watch(ctx, with(o))
			answered(err)
			return watching, err
		},
	}, example, 0, cache.Indexers{})

	_ = informer.SetTransform(func(object any) (any, error) {
		if one, ok := object.(runtime.Object); ok {
			if accessor, err := meta.Accessor(one); err == nil {
				accessor.SetManagedFields(nil)
			}
			slim(one)
		}
		return object, nil
	})
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			failing.Store(true)
			tell(news{err: err, listed: listed.Load()})
		}
	})

	pass := func(object any, gone bool) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		if one, ok := object.(runtime.Object); ok {
			tell(news{object: one, gone: gone})
		}
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { pass(object, false) },
		UpdateFunc: func(_, object any) { pass(object, false) },
		DeleteFunc: func(object any) { pass(object, true) },
	})
	if err != nil {
		tell(news{err: err})
		return
	}

	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
			tell(news{synced: true})
		}
	}()
	informer.RunWithContext(ctx)
}

// queue passes changes from watches to the loop of a page. Watches do not wait for the page, since an informer
// that waits does not see what happens.
type queue struct {
	mu    sync.Mutex
	items []func()
	wake  chan struct{}
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// put adds what the loop shall do.
func (q *queue) put(do func()) {
	q.mu.Lock()
	q.items = append(q.items, do)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns what was added since.
func (q *queue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

// The page is told at most four times a second what changed, and every 15 seconds that the stream lives.
const (
	beat      = 250 * time.Millisecond
	heartbeat = 15 * time.Second
)

// loop does what is put into the queue, one after the other, and calls tick after each beat in which there was
// something, until the page is gone.
func (s *stream) loop(q *queue, tick func()) {
	pulse := time.NewTicker(heartbeat)
	defer pulse.Stop()
	var due <-chan time.Time
	for {
		select {
		case <-s.context.Done():
			return
		case <-pulse.C:
			s.send(message{"type": "ping"})
		case <-q.wake:
			for _, do := range q.take() {
				do()
			}
			if due == nil {
				due = time.After(beat)
			}
		case <-due:
			due = nil
			tick()
		}
	}
}
