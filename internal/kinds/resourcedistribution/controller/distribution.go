package controller

import (
	"container/heap"
	"errors"
	"sync"
	"time"

	"github.com/afloat-project/afloat/internal/engine/timing"
	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
)

// distribution is what is kept of a ResourceDistribution between passes.
type distribution struct {
	name string

	mu sync.Mutex
	// targets is nil while the targets cannot be read.
	targets *resourcedistribution.Targets
	// pending are the namespaces to be looked at, in the order in which they were marked. whole means all of
	// them.
	pending []string
	queued  map[string]bool
	whole   bool

	// Only the pass uses the following fields. resource is what is distributed, as of generation, or nil if
	// there is a fault.
	generation int64
	resource   *resourcedistribution.Resource
	fault      error
	copies     *copies
	counts     resourcedistribution.Tally
	failures   map[string]*failure
	schedule   schedule
	// batch is how many namespaces are worked on together next.
	batch int
	// told is when the last event was sent.
	told time.Time
	// incomplete reports that a namespace was without its copy since the last event that all have one.
	incomplete bool
}

// mark lets a pass look at a namespace, or at all of them if it is empty.
func (d *distribution) mark(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if namespace == "" {
		d.whole = true
		return
	}
	if d.queued[namespace] {
		return
	}
	if d.queued == nil {
		d.queued = map[string]bool{}
	}
	d.queued[namespace] = true
	d.pending = append(d.pending, namespace)
}

// take returns up to n of the namespaces to be looked at.
func (d *distribution) take(n int) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.pending[:min(n, len(d.pending))]
	if d.pending = d.pending[len(taken):]; len(d.pending) == 0 {
		d.pending = nil
	}
	for _, namespace := range taken {
		delete(d.queued, namespace)
	}
	return taken
}

// left returns how many namespaces are to be looked at, and whether all are.
func (d *distribution) left() (int, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pending), d.whole
}

// all reports whether all namespaces are to be looked at, and resets that.
func (d *distribution) all() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	whole := d.whole
	d.whole = false
	return whole
}

// setTargets sets the targets, or nil if they cannot be read.
func (d *distribution) setTargets(targets *resourcedistribution.Targets) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.targets, d.whole = targets, true
}

// concerns reports whether any of the versions of a namespace is a target.
func (d *distribution) concerns(versions ...resourcedistribution.Namespace) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range versions {
		if v := &versions[i]; d.targets != nil &&
			d.targets.Wants(v.Name, v.Exists && !v.Terminating, v.Labels) {
			return true
		}
	}
	return false
}

// Limits for repairs: how often a copy that was correct before is rewritten at once, and the pauses after
// that, since others may change it again and again.
const (
	freeRepairs  = 4
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	quiet        = 10 * time.Minute
)

// failure records what holds back writes in one namespace, so that it does not affect the others.
type failure struct {
	retry timing.Retry
	// repairs is how often in a row the copy was repaired, last is when, and until is when the next repair is
	// allowed.
	repairs     int
	last, until time.Time
}

func (d *distribution) troubleIn(namespace string) *failure {
	if d.failures == nil {
		d.failures = map[string]*failure{}
	}
	t := d.failures[namespace]
	if t == nil {
		t = &failure{}
		d.failures[namespace] = t
	}
	return t
}

var errRestless = errors.New("others change it again and again")

// held returns until when writes in a namespace are held back, and why, or a zero time if they are not.
func (d *distribution) held(namespace string, now time.Time) (time.Time, string) {
	t := d.failures[namespace]
	if t == nil {
		return time.Time{}, ""
	}

	until, why := t.retry.Last(d.resource.Hash)
	if why == "" {
		why = errRestless.Error()
	}
	if t.until.After(until) {
		until = t.until
	}
	if !now.Before(until) {
		return time.Time{}, ""
	}

	return until, why
}

// failed records a failed write.
func (d *distribution) failed(namespace string, err error, now time.Time) {
	t := d.troubleIn(namespace)
	t.retry.Failed(d.resource.Hash, err, now)
	until, _ := t.retry.Last(d.resource.Hash)
	d.schedule.add(namespace, until)
}

// wrote records a write. repaired reports that the copy was correct before. If err is not nil, something
// failed after the write; failed records that next, and its back-off continues.
func (d *distribution) wrote(namespace string, repaired bool, err error, now time.Time) {
	t := d.failures[namespace]
	if t == nil && !repaired {
		return
	}

	t = d.troubleIn(namespace)
	if err == nil {
		t.retry = timing.Retry{}
	}

	if !repaired {
		return
	}

	if now.Sub(t.last) > quiet {
		t.repairs = 0
	}
	t.repairs, t.last = t.repairs+1, now

	if over := t.repairs - freeRepairs; over >= 0 {
		t.until = now.Add(min(firstPause<<min(over, 16), longestPause))
		d.schedule.add(namespace, t.until)
	}
	d.schedule.add(namespace, now.Add(quiet+time.Second))
}

// due marks the namespaces whose time has come, and forgets failures that are over.
func (d *distribution) due(now time.Time) {
	for _, namespace := range d.schedule.due(now) {
		t := d.failures[namespace]
		if t == nil {
			continue
		}
		until, _ := t.retry.Last(d.resource.Hash)
		if now.Sub(t.last) > quiet && (until.IsZero() || now.Sub(until) > quiet) {
			delete(d.failures, namespace)
			t = nil
		}
		if outcome, known := d.counts.Of(namespace); known && outcome.Failure != "" {
			d.mark(namespace)
		} else if t != nil {
			d.schedule.add(namespace, now.Add(quiet+time.Second)) // to be forgotten then
		}
	}
}

// schedule records when to look at namespaces again. The zero value is empty.
type schedule struct{ items appointments }

type appointment struct {
	at        time.Time
	namespace string
}

type appointments []appointment

func (a appointments) Len() int           { return len(a) }
func (a appointments) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a appointments) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *appointments) Push(x any) {
	if item, ok := x.(appointment); ok {
		*a = append(*a, item)
	}
}

// Pop implements heap.Interface.
func (a *appointments) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func (a *schedule) add(namespace string, at time.Time) {
	heap.Push(&a.items, appointment{at, namespace})
}

// due removes and returns the namespaces that are due.
func (a *schedule) due(now time.Time) (namespaces []string) {
	for len(a.items) > 0 && !a.items[0].at.After(now) {
		if item, ok := heap.Pop(&a.items).(appointment); ok {
			namespaces = append(namespaces, item.namespace)
		}
	}
	return namespaces
}

// next returns the time until the next appointment, or 0 if there is none.
func (a *schedule) next(now time.Time) time.Duration {
	if len(a.items) == 0 {
		return 0
	}
	return max(a.items[0].at.Sub(now), time.Millisecond)
}
