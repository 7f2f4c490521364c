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

// Bounds of a Flow. A server that refuses for want of time gets at least flowLeast at a time. One that is
// slow gets flowFirst: it may be this process that has no time, and API servers group the writes of a moment
// into one of their disk, so that few in flight make them slower. Beyond flowMost they only wait there
// instead of here.
const (
	flowLeast, flowFirst, flowMost = 8, 40, 128
	// flowWindow is how many answers are looked at together.
	flowWindow = 64
	// flowSlower and flowJitter are how much longer than at best answers may take: so many times as long, and
	// so much more.
	flowSlower, flowJitter = 4, 5 * time.Millisecond
)

// Flow bounds how many tasks are carried out at the same time, for all owners together: more as long as the
// API server answers quickly, fewer when it becomes slow or refuses for want of time. When a place becomes
// free, the owner that has the fewest of them gets it, so that a large rollout does not hold up small ones.
// One Flow serves all controllers of a process. A nil one carries out one task after the other.
type Flow struct {
	mu      sync.Mutex
	limit   float64
	running int
	busy    map[types.UID]int
	waiting []*place

	// Of the answers in the window: how many, how long they took, and to which owners, told of each whether
	// it was asked to come back later. full: there was need for more places.
	answers int
	took    time.Duration
	told    map[types.UID]bool
	full    bool
	// best is how long answers take at best, as far as that is known: it follows slowly when they take
	// longer.
	best time.Duration
}

// place is what somebody waits for.
type place struct {
	owner types.UID
	free  chan struct{}
}

// NewFlow returns a Flow that begins with so many places; 0 is what a manager begins with.
func NewFlow(places int) *Flow {
	if places == 0 {
		places = flowFirst
	}
	return &Flow{limit: float64(places), busy: map[types.UID]int{}, told: map[types.UID]bool{}}
}

// Each runs do for 0 to n-1 for an owner, as many at a time as there are places, waits for all, and returns
// their errors by index. It takes up the next one when a place is free, and none after the context has ended.
// A panic is an error.
func (f *Flow) Each(ctx context.Context, owner types.UID, n int, do func(i int) error) []error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		if f == nil {
			errs[i] = Guarded(ctx, func() error { return do(i) })
			continue
		}
		if err := f.take(ctx, owner); err != nil {
			for ; i < n; i++ {
				errs[i] = err
			}
			break
		}
		all.Go(func() {
			defer f.give(owner)
			errs[i] = Guarded(ctx, func() error { return do(i) })
		})
	}
	all.Wait()
	return errs
}

// Guarded runs do, and returns a panic as an error: uncaught in a goroutine, it would end the process.
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

func (f *Flow) take(ctx context.Context, owner types.UID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	if f.free(owner) { // those that wait are not: their owners have what they may have
		f.start(owner)
		f.mu.Unlock()
		return nil
	}
	f.full = true
	p := &place{owner, make(chan struct{})}
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
	return nil // it became free at this moment, and is given back as any other
}

// Collectors are the metrics of the Flow: the bound, the tasks under way, and the owners that wait for a
// place.
func (f *Flow) Collectors() []prometheus.Collector {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			f.mu.Lock()
			defer f.mu.Unlock()
			return float64(value())
		})
	}
	return []prometheus.Collector{
		gauge("afloat_tasks_limit", "How many tasks of all controllers may be under way, by how quickly the API server answers.",
			func() int { return int(f.limit) }),
		gauge("afloat_tasks_running", "Tasks of all controllers that are under way.", func() int { return f.running }),
		gauge("afloat_tasks_waiting", "Tasks that wait for a place, one for each owner that has more to do.",
			func() int { return len(f.waiting) }),
	}
}

func (f *Flow) start(owner types.UID) {
	f.running++
	f.busy[owner]++
}

// free tells whether there is a place for the owner. A quarter is for others: the requests of one may take
// long, such as those that a slow webhook of its namespace is asked about.
func (f *Flow) free(owner types.UID) bool {
	return f.running < int(f.limit) && f.busy[owner] < max(int(f.limit*3/4), 1)
}

// give gives a place back. Those that wait longest come first among owners that have as many.
func (f *Flow) give(owner types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	if f.busy[owner]--; f.busy[owner] == 0 {
		delete(f.busy, owner)
	}
	f.fill()
}

func (f *Flow) fill() {
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

// saw takes note of an answer of the API server about something of an owner's.
func (f *Flow) saw(owner types.UID, took time.Duration, err error) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers++
	f.took += took
	_, later := apierrors.SuggestsClientDelay(err)
	f.told[owner] = f.told[owner] || later || apierrors.IsServiceUnavailable(err)
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
	clear(f.told)
	f.fill()
}

// overloaded tells whether the API server has no time: it told most owners so. A webhook, a quota or a budget
// that refuses the requests of one owner in the same words does not slow down the others.
func (f *Flow) overloaded() bool {
	told := 0
	for _, later := range f.told {
		if later {
			told++
		}
	}
	return 2*told > len(f.told)
}
