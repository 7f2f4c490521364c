package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// These are the bounds of a WriteLimiter. When the API server refuses requests because it is overloaded, at
// least flowLeast tasks run at a time. When it is slow, at least flowFirst run: this process may itself be
// the slow part, and API servers group concurrent writes into one disk write, so that few in flight make each
// of them slower. Beyond flowMost, tasks would only wait in the API server instead of here.
const (
	flowLeast, flowFirst, flowMost = 8, 40, 128
	// flowWindow is how many answers are evaluated together.
	flowWindow = 64
	// flowSlower and flowJitter define how long answers may take: flowSlower times the best time plus
	// flowJitter.
	flowSlower, flowJitter = 4, 5 * time.Millisecond
)

// WriteLimiter bounds how many tasks run at the same time, for all owners together. The bound grows while the
// API server answers quickly, and shrinks when it becomes slow or refuses requests because it is overloaded.
// A place that becomes free goes to the owner that has the fewest, so that a large rollout does not hold up
// small ones. All controllers of a process share one WriteLimiter. A nil WriteLimiter runs one task after the
// other.
type WriteLimiter struct {
	mu      sync.Mutex
	limit   float64
	running int
	busy    map[types.UID]int
	waiting []*slot

	// These are about the answers in the current window: their number, the time they took in all, and by
	// owner whether any of them asked to come back later. full is true if more places were needed.
	answers   int
	took      time.Duration
	throttled map[types.UID]bool
	full      bool
	// best is the time that answers take at best, as far as known. It grows slowly if they take longer.
	best time.Duration
}

// slot is what a task waits for.
type slot struct {
	owner types.UID
	free  chan struct{}
}

// NewWriteLimiter returns a WriteLimiter that starts with the given number of places; 0 is the default of a
// manager.
func NewWriteLimiter(places int) *WriteLimiter {
	if places == 0 {
		places = flowFirst
	}
	return &WriteLimiter{limit: float64(places), busy: map[types.UID]int{}, throttled: map[types.UID]bool{}}
}

// Each runs do for 0 to n-1 for an owner, as many at a time as there are places. It waits for all of them and
// returns their errors by index. It starts the next one when a place is free, and none after the context has
// ended. A panic is returned as an error.
func (f *WriteLimiter) Each(ctx context.Context, owner types.UID, n int, do func(i int) error) []error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		if f == nil {
			errs[i] = Guarded(ctx, func() error { return do(i) })
			continue
		}
		if err := f.acquire(ctx, owner); err != nil {
			for ; i < n; i++ {
				errs[i] = err
			}
			break
		}
		all.Go(func() {
			defer f.release(owner)
			errs[i] = Guarded(ctx, func() error { return do(i) })
		})
	}

	all.Wait()
	return errs
}

// Guarded runs do and returns a panic as an error. An uncaught panic in a goroutine would end the process.
func Guarded(ctx context.Context, do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			for _, handle := range utilruntime.PanicHandlers { // they log the stack
				handle(ctx, cause)
			}
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return do()
}

func (f *WriteLimiter) acquire(ctx context.Context, owner types.UID) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	f.mu.Lock()
	if f.free(owner) { // waiting tasks do not come first: their owners have what they may have
		f.start(owner)
		f.mu.Unlock()
		return nil
	}

	f.full = true
	p := &slot{owner, make(chan struct{})}
	f.waiting = append(f.waiting, p)
	f.mu.Unlock()

	select {
	case <-p.free:
		return nil
	case <-ctx.Done():
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	if i := slices.Index(f.waiting, p); i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
		return ctx.Err()
	}

	return nil // the place became free just now, and is given back like any other
}

// Collectors returns the metrics of the WriteLimiter: the bound, the running tasks, and the owners that wait
// for a place.
func (f *WriteLimiter) Collectors() []prometheus.Collector {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			f.mu.Lock()
			defer f.mu.Unlock()
			return float64(value())
		})
	}

	return []prometheus.Collector{
		gauge("afloat_tasks_limit",
			"How many tasks of all controllers may be under way, by how quickly the API server answers.",
			func() int { return int(f.limit) }),
		gauge("afloat_tasks_running", "Tasks of all controllers that are under way.",
			func() int { return f.running }),
		gauge("afloat_tasks_waiting", "Tasks that wait for a place, one for each owner that has more to do.",
			func() int { return len(f.waiting) }),
	}
}

func (f *WriteLimiter) start(owner types.UID) {
	f.running++
	f.busy[owner]++
}

// free reports whether there is a place for the owner. A quarter of the places is reserved for other owners,
// because the requests of one owner may take long, for example if a slow webhook of its namespace handles
// them.
func (f *WriteLimiter) free(owner types.UID) bool {
	return f.running < int(f.limit) && f.busy[owner] < max(int(f.limit*3/4), 1)
}

// release returns a place. Among owners that have equally many places, the one that has waited longest gets
// it.
func (f *WriteLimiter) release(owner types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	if f.busy[owner]--; f.busy[owner] == 0 {
		delete(f.busy, owner)
	}
	f.fill()
}

func (f *WriteLimiter) fill() {
	for {
		next := -1
		for i, p := range f.waiting {
			if f.free(p.owner) && (next < 0 || f.busy[p.owner] < f.busy[f.waiting[next].owner]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		p := f.waiting[next]
		f.waiting = slices.Delete(f.waiting, next, next+1)
		f.start(p.owner)
		close(p.free)
	}
}

// observe records an answer of the API server to a request of an owner.
func (f *WriteLimiter) observe(owner types.UID, took time.Duration, err error) {
	if f == nil {
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.answers++
	f.took += took
	_, later := apierrors.SuggestsClientDelay(err)
	f.throttled[owner] = f.throttled[owner] || later || apierrors.IsServiceUnavailable(err)
	if f.answers < flowWindow {
		return
	}

	mean := f.took / time.Duration(f.answers)
	if f.best == 0 || mean < f.best {
		f.best = mean
	}

	switch {
	case f.overloaded():
		f.limit *= 0.7
	case mean > flowSlower*f.best+flowJitter:
		f.limit = max(0.9*f.limit, min(f.limit, flowFirst))
	case f.full:
		f.limit *= 1.125
	}

	f.best += (mean - f.best) / 512
	f.limit = min(max(f.limit, flowLeast), flowMost)
	f.answers, f.took, f.full = 0, 0, len(f.waiting) > 0
	clear(f.throttled)
	f.fill()
}

// overloaded reports whether the API server is overloaded: it asked most owners to come back later. A
// webhook, a quota or a budget that refuses the requests of one owner in the same words does not slow down
// the others.
func (f *WriteLimiter) overloaded() bool {
	told := 0
	for _, later := range f.throttled {
		if later {
			told++
		}
	}
	return 2*told > len(f.throttled)
}
