package controller

import (
	"container/heap"
	"errors"
	"sync"
	"time"

	"github.com/afloat-project/afloat/internal/engine/retries"
	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// distribution is what is kept of a ResourceDistribution between passes.
type distribution struct {
	name string

	mu sync.Mutex
	// targets are nil while it cannot be read.
	targets *resourcedistribution.Targets
	// pending are the namespaces that are to be looked at, in the order in which they were marked; whole
	// stands for all.
	pending []string
	queued  map[string]bool
	whole   bool

	// What follows is the pass's alone. resource is what is distributed, of that generation, nil if there is
	// fault.
	generation int64
	resource   *resourcedistribution.Resource
	fault      error
	copies     *copies
	tally      resourcedistribution.Tally
	troubles   map[string]*trouble
	agenda     agenda
	// batch is how many namespaces are worked on together next.
	batch int
	pace  reconcile.StatusThrottle
	news  reconcile.News
	// told is when an event was sent last.
	told time.Time
	// incomplete: a namespace was without its copy since it was told that all have theirs.
	incomplete bool
}

// mark has a pass look at a namespace; all of them if it is empty.
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

// take returns up to n of the namespaces that are to be looked at.
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

// left is how many are to be looked at, and whether all are.
func (d *distribution) left() (int, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pending), d.whole
}

// all tells once that all namespaces are to be looked at.
func (d *distribution) all() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	whole := d.whole
	d.whole = false
	return whole
}

// aim sets the targets; nil if they cannot be read.
func (d *distribution) aim(targets *resourcedistribution.Targets) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.targets, d.whole = targets, true
}

// concerns tells whether a namespace is a target as it was, or as it is.
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

// Bounds of how often the copy in one namespace is written though it was right before: others may change it
// again and again.
const (
	freeRepairs  = 4
	firstPause   = time.Second
	longestPause = 5 * time.Minute
	quiet        = 10 * time.Minute
)

// trouble is what holds back writes in one namespace, so that they are no matter for others.
type trouble struct {
	retry retries.Retry
	// repairs is how often in a row the copy was written since it was right, until is when it may be again.
	repairs     int
	last, until time.Time
}

func (d *distribution) troubleIn(namespace string) *trouble {
	if d.troubles == nil {
		d.troubles = map[string]*trouble{}
	}
	t := d.troubles[namespace]
	if t == nil {
		t = &trouble{}
		d.troubles[namespace] = t
	}
	return t
}

var errRestless = errors.New("others change it again and again")

// held returns until when writes in a namespace are held back, and why; zero if they are not.
func (d *distribution) held(namespace string, now time.Time) (time.Time, string) {
	t := d.troubles[namespace]
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

// failed notes that a write failed.
func (d *distribution) failed(namespace string, err error, now time.Time) {
	t := d.troubleIn(namespace)
	t.retry.Failed(d.resource.Hash, err, now)
	until, _ := t.retry.Last(d.resource.Hash)
	d.agenda.add(namespace, until)
}

// wrote notes a write; repaired: the copy was right before. What failed after it is noted next, and its
// pauses go on.
func (d *distribution) wrote(namespace string, repaired bool, err error, now time.Time) {
	t := d.troubles[namespace]
	if t == nil && !repaired {
		return
	}

	t = d.troubleIn(namespace)
	if err == nil {
		t.retry = retries.Retry{}
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
		d.agenda.add(namespace, t.until)
	}
	d.agenda.add(namespace, now.Add(quiet+time.Second))
}

// due marks the namespaces whose time has come, and forgets what is over.
func (d *distribution) due(now time.Time) {
	for _, namespace := range d.agenda.due(now) {
		t := d.troubles[namespace]
		if t == nil {
			continue
		}
		until, _ := t.retry.Last(d.resource.Hash)
		if now.Sub(t.last) > quiet && (until.IsZero() || now.Sub(until) > quiet) {
			delete(d.troubles, namespace)
			t = nil
		}
		if outcome, known := d.tally.Of(namespace); known && outcome.Failure != "" {
			d.mark(namespace)
		} else if t != nil {
			d.agenda.add(namespace, now.Add(quiet+time.Second)) // to be forgotten
		}
	}
}

// agenda says when to look at namespaces again. The zero value is empty.
type agenda struct{ items appointments }

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

func (a *agenda) add(namespace string, at time.Time) { heap.Push(&a.items, appointment{at, namespace}) }

// due takes out what is due.
func (a *agenda) due(now time.Time) (namespaces []string) {
	for len(a.items) > 0 && !a.items[0].at.After(now) {
		if item, ok := heap.Pop(&a.items).(appointment); ok {
			namespaces = append(namespaces, item.namespace)
		}
	}
	return namespaces
}

// next is how long it is until the next one; 0 if there is none.
func (a *agenda) next(now time.Time) time.Duration {
	if len(a.items) == 0 {
		return 0
	}
	return max(a.items[0].at.Sub(now), time.Millisecond)
}
