package probe

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// Limits of concurrent probes on a node. A namespace gets only a share of the places. If more attempts are
// due than can be started, namespaces take turns, so that the probes of one cannot delay those of others.
const (
	mostAtOnce      = 64
	mostOfNamespace = 16
	// pace is the time between the starts of two attempts when many are due, and burst how many may start
	// together.
	pace  = 5 * time.Millisecond
	burst = 32
)

// Schedule decides which probe is next. It has no clock. Times passed to it must not go back by more than a
// moment.
type Schedule struct {
	entries map[Key]*entry
	due     dueHeap
	// turns holds the namespaces in which probes are waiting, in the order of their turns.
	turns   []string
	waiting map[string][]*entry
	running map[string]int
	begun   int
	// credit is how many attempts may start now, and counted is when it was computed.
	credit  float64
	counted time.Time
}

type entry struct {
	key       Key
	namespace string
	period    time.Duration
	at        time.Time
	index     int // in the heap; -1 if it is not in the heap
	running   bool
	gone      bool
}

// NewSchedule returns a Schedule without probes.
func NewSchedule(now time.Time) *Schedule {
	return &Schedule{
		entries: map[Key]*entry{},
		waiting: map[string][]*entry{},
		running: map[string]int{},
		credit:  burst,
		counted: now,
	}
}

// Put adds a probe, or changes its period from the next attempt on (PPM-081). If later is set, the first
// attempt is delayed by a random part of the period, because otherwise all probes of a node would start
// together after a restart (PPM-082).
func (s *Schedule) Put(key Key, namespace string, period time.Duration, later bool, now time.Time) {
	if known := s.entries[key]; known != nil {
		known.period = period
		if known.index >= 0 && known.at.Sub(now) > period {
			known.at = now.Add(period)
			heap.Fix(&s.due, known.index)
		}
		return
	}

	e := &entry{key: key, namespace: namespace, period: period, at: now, index: -1}
	if later {
		e.at = now.Add(rand.N(period))
	}
	s.entries[key] = e
	heap.Push(&s.due, e)
}

// Remove removes a probe. An attempt in progress is not canceled.
func (s *Schedule) Remove(key Key) {
	e := s.entries[key]
	if e == nil {
		return
	}

	delete(s.entries, key)
	e.gone = true
	if e.index >= 0 {
		heap.Remove(&s.due, e.index)
		return
	}

	if list := s.waiting[e.namespace]; !e.running {
		s.wait(e.namespace, slices.DeleteFunc(list, func(o *entry) bool { return o == e }))
	}
}

// wait sets the list of waiting probes of a namespace.
func (s *Schedule) wait(namespace string, list []*entry) {
	if len(list) > 0 {
		s.waiting[namespace] = list
		return
	}
	delete(s.waiting, namespace)
	s.turns = slices.DeleteFunc(s.turns, func(n string) bool { return n == namespace })
}

// Turn is the right to make one attempt. It is returned by [Schedule.Done].
type Turn struct {
	Key
	entry *entry
}

// Next returns the next turn, or the time after which to call it again. That time is 0 if only a returned
// turn or a new probe can change the result.
func (s *Schedule) Next(now time.Time) (*Turn, time.Duration) {
	for len(s.due) > 0 && !s.due[0].at.After(now) {
		e := heap.Pop(&s.due).(*entry)
		if len(s.waiting[e.namespace]) == 0 {
			s.turns = append(s.turns, e.namespace)
		}
		s.waiting[e.namespace] = append(s.waiting[e.namespace], e)
	}

	var later time.Duration
	if len(s.due) > 0 {
		later = max(s.due[0].at.Sub(now), time.Millisecond)
	}
	at := slices.IndexFunc(s.turns, func(n string) bool { return s.running[n] < s.places() })
	if at < 0 || s.begun >= mostAtOnce {
		return nil, later
	}

	s.credit = min(s.credit+max(float64(now.Sub(s.counted))/float64(pace), 0), burst)
	if s.counted = now; s.credit < 1 {
		wait := time.Duration((1-s.credit)*float64(pace)) + time.Microsecond
		if later == 0 || wait < later {
			later = wait
		}
		return nil, later
	}

	s.credit--
	namespace := s.turns[at]
	e := s.waiting[namespace][0]
	s.turns = append(slices.Delete(s.turns, at, at+1), namespace) // behind the others
	s.wait(namespace, s.waiting[namespace][1:])
	e.running = true
	s.running[namespace]++
	s.begun++
	return &Turn{e.key, e}, 0
}

// places returns how many attempts of a namespace may be in progress now. The fewer places are free, the
// fewer a namespace gets, so that a tenant with a few namespaces whose attempts never end does not take all
// of them.
func (s *Schedule) places() int { return min(mostOfNamespace, max((mostAtOnce-s.begun)/3, 1)) }

// Done returns a turn. The next attempt follows the period of the probe. Missed attempts are not made up for.
func (s *Schedule) Done(turn *Turn, now time.Time) {
	e := turn.entry
	e.running = false
	s.begun--
	if s.running[e.namespace]--; s.running[e.namespace] == 0 {
		delete(s.running, e.namespace)
	}
	if e.gone {
		return
	}

	e.at = e.at.Add(e.period)
	if late := now.Sub(e.at); late >= 0 || late < -e.period { // missed, or the clock was set back
		e.at = now.Add(e.period - max(late, 0)%e.period)
	}
	heap.Push(&s.due, e)
}

// Waiting returns how many attempts are due and have not started, and how many are in progress.
func (s *Schedule) Waiting() (waiting, running int) {
	for _, list := range s.waiting {
		waiting += len(list)
	}
	return waiting, s.begun
}

// dueHeap is a heap of entries ordered by due time.
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
