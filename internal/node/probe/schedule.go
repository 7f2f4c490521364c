package probe

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// Bounds of what probes of a node do at the same time (PPM-100). A namespace gets no more than its part of
// the places, and where more attempts are due than can be begun, namespaces take turns: probes of one cannot
// hold up those of others.
const (
	mostAtOnce      = 64
	mostOfNamespace = 16
	// pace is the time between the beginnings of two attempts when many are due, and burst how many may begin
	// together.
	pace  = 5 * time.Millisecond
	burst = 32
)

// Schedule says which probe is next. It has no clock; times may not go back by more than a moment.
type Schedule struct {
	entries map[Key]*entry
	due     dueHeap
	// turns are the namespaces in which probes wait for their turn, in the order of the turns.
	turns   []string
	waiting map[string][]*entry
	running map[string]int
	begun   int
	// credit is how many attempts may begin now, and counted when that was counted.
	credit  float64
	counted time.Time
}

type entry struct {
	key       Key
	namespace string
	period    time.Duration
	at        time.Time
	index     int // in the heap; -1 if it is not there
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

// Put adds a probe, or changes its period from the next attempt on (PPM-081). later delays the first attempt
// by a random part of the period: all probes of a node would begin together after a start (PPM-082).
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

// Remove removes a probe. An attempt that is under way ends as it would.
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

// wait sets what waits in a namespace.
func (s *Schedule) wait(namespace string, list []*entry) {
	if len(list) > 0 {
		s.waiting[namespace] = list
		return
	}
	delete(s.waiting, namespace)
	s.turns = slices.DeleteFunc(s.turns, func(n string) bool { return n == namespace })
}

// Turn is the right to make one attempt, which [Schedule.Done] gives back.
type Turn struct {
	Key
	entry *entry
}

// Next returns the next turn, or when to ask again, which is 0 if only a turn that is given back, or a new
// probe, changes anything.
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

// places is how many attempts a namespace may have under way now: the fewer places are free, the fewer it
// gets, so that a tenant with a few namespaces whose attempts never end does not take all of them.
func (s *Schedule) places() int { return min(mostOfNamespace, max((mostAtOnce-s.begun)/3, 1)) }

// Done gives a turn back. The next one comes at the next time of the probe's own rhythm: what was missed is
// not made up for.
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

// Waiting is how many attempts are due and have not begun, and Running how many have.
func (s *Schedule) Waiting() (waiting, running int) {
	for _, list := range s.waiting {
		waiting += len(list)
	}
	return waiting, s.begun
}

// dueHeap has the entry first that is due first.
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
