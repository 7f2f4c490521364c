package imagepull

import (
	"context"
	"slices"
	"sync"
)

// slots bounds how many pulls run at once, in all and for each namespace. A pull may last very long, so if
// one namespace had all places, the others would wait (IMG-133).
type slots struct {
	mu    sync.Mutex
	free  int // free places; below 0 there is no limit
	most  int // most places of one namespace
	held  map[string]int
	queue []*place
}

// place is a place in the queue, and then among those that pull.
type place struct {
	// turn is closed when the pull may begin.
	turn chan struct{}
	// namespaces are those of the jobs of the tag. It is empty for a tag that no job owns, which only an
	// administrator of the cluster can write.
	namespaces []string
	// counts is the namespace whose place it takes.
	counts string
}

// newSlots returns slots for n pulls, of which one namespace may have all but one; n below 1 means no limit.
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

// next gives free places to waiting pulls: first to those of the namespace that has the fewest places, and
// among them in their order.
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

// least chooses the namespace of the pull that has the fewest places, and returns how many it has.
func (s *slots) least(p *place) int {
	p.counts = ""
	for i, namespace := range p.namespaces {
		if i == 0 || s.held[namespace] < s.held[p.counts] {
			p.counts = namespace
		}
	}
	return s.held[p.counts]
}

// wait waits until the pull may begin. If the context ends before, the place is given up and wait returns
// false.
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
	if at < 0 { // it has got its turn meanwhile
		s.leave(p)
	}

	return false
}

// leave gives the place back, and starts the next pull.
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
