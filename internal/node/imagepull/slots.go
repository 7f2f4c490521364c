package imagepull

import (
	"context"
	"slices"
	"sync"
)

// slots bounds how many pulls run at once, in all and for each namespace: a pull lasts as long as its job and its registry like, so that
// one namespace which had all the places would keep the others waiting (IMG-133).
type slots struct {
	mu    sync.Mutex
	free  int // below 0: no limit
	most  int // of one namespace
	held  map[string]int
	queue []*place
}

// place is a place in the queue, and then among those that pull.
type place struct {
	// turn is closed when it is its turn.
	turn chan struct{}
	// namespaces are those of the jobs that ask for the pull; none for a tag that no job owns, which only who administers the cluster can
	// write.
	namespaces []string
	// counts is the namespace for which it pulls.
	counts string
}

// newSlots returns room for n pulls, all but one of them for one namespace; n below 1 means no limit.
func newSlots(n int) *slots {
	if n < 1 {
		n = -1
	}
	return &slots{free: n, most: max(n-1, 1), held: map[string]int{}}
}

// join takes a place in the queue.
func (s *slots) join(namespaces []string) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &place{turn: make(chan struct{}), namespaces: namespaces}
	s.queue = append(s.queue, p)
	s.next()
	return p
}

// next gives free places away: to who waits for the namespace that has fewest, and among them to who came first.
func (s *slots) next() {
	for s.free != 0 {
		first, least := -1, 0
		for i, p := range s.queue {
			if n := s.least(p); (s.free < 0 || n < s.most || p.counts == "") && (first < 0 || n < least) {
				first, least = i, n
			}
		}
		if first < 0 {
			return
		}
		p := s.queue[first]
		s.queue = slices.Delete(s.queue, first, first+1)
		s.held[p.counts]++
		if s.free > 0 {
			s.free--
		}
		close(p.turn)
	}
}

// least chooses, of the namespaces for which the pull is, the one that has fewest places, and returns how many.
func (s *slots) least(p *place) int {
	p.counts = ""
	for i, namespace := range p.namespaces {
		if i == 0 || s.held[namespace] < s.held[p.counts] {
			p.counts = namespace
		}
	}
	return s.held[p.counts]
}

// wait waits for the turn; if the context ends before, the place is given up and wait returns false.
func (s *slots) wait(ctx context.Context, p *place) bool {
	select {
	case <-p.turn:
		if ctx.Err() == nil {
			return true
		}
		s.leave(p)
		return false
	case <-ctx.Done():
	}
	s.mu.Lock()
	at := slices.Index(s.queue, p)
	if at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	s.mu.Unlock()
	if at < 0 { // its turn came meanwhile
		s.leave(p)
	}
	return false
}

// leave gives the place back, and away.
func (s *slots) leave(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[p.counts]--; s.held[p.counts] == 0 {
		delete(s.held, p.counts)
	}
	if s.free >= 0 {
		s.free++
	}
	s.next()
}
