package imagepull

import (
	"context"
	"slices"
	"sync"
)

// slots limits the number of concurrent pulls, in total and for each namespace. A pull may take very long, so
// all other namespaces would wait if one namespace could take all places.
type slots struct {
	mu    sync.Mutex
	free  int // free places; negative without a limit
	most  int // the maximum number of places of one namespace
	held  map[string]int
	queue []*place
}

// place is a place in the queue, and later one of the running pulls.
type place struct {
	// turn is closed when the pull may begin.
	turn chan struct{}
	// namespaces are the namespaces of the jobs that own the tag. It is empty for a tag without a job, which
	// only a cluster administrator can write.
	namespaces []string
	// counts is the namespace that the place is counted for.
	counts string
}

// newSlots returns slots for n pulls, of which one namespace may have all but one. There is no limit if n is
// below 1.
func newSlots(n int) *slots {
	if n < 1 {
		n = -1
	}
	return &slots{free: n, most: max(n-1, 1), held: map[string]int{}}
}

// join appends a place to the queue.
func (s *slots) join(namespaces []string) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &place{turn: make(chan struct{}), namespaces: namespaces}
	s.queue = append(s.queue, p)
	s.next()
	return p
}

// next assigns free places to waiting pulls. Pulls of the namespace with the fewest places come first, and
// among them those that joined first.
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

// least selects the namespace of the pull that has the fewest places, and returns their number.
func (s *slots) least(p *place) int {
	p.counts = ""
	for i, namespace := range p.namespaces {
		if i == 0 || s.held[namespace] < s.held[p.counts] {
			p.counts = namespace
		}
	}
	return s.held[p.counts]
}

// wait waits until the pull may begin. If the context is canceled before that, it gives up the place and
// returns false.
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
	if at < 0 { // it got its turn meanwhile
		s.leave(p)
	}

	return false
}

// leave returns the place and starts the next pull.
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
