package imagepull

import (
	"context"
	"slices"
	"sync"
)

// slots bounds how many pulls run at once: first come, first served (IMG-133).
type slots struct {
	mu    sync.Mutex
	free  int // below 0: no limit
	queue []chan struct{}
}

// newSlots returns room for n pulls; n below 1 means no limit.
func newSlots(n int) *slots {
	if n < 1 {
		n = -1
	}
	return &slots{free: n}
}

// join takes a place in the queue; the channel is closed when it is its turn.
func (s *slots) join() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := make(chan struct{})
	switch {
	case s.free < 0:
		close(turn)
	case s.free > 0:
		s.free--
		close(turn)
	default:
		s.queue = append(s.queue, turn)
	}
	return turn
}

// wait waits for the turn; if the context ends before, the place is given up and wait returns false.
func (s *slots) wait(ctx context.Context, turn chan struct{}) bool {
	select {
	case <-turn:
		if ctx.Err() == nil {
			return true
		}
		s.leave()
		return false
	case <-ctx.Done():
	}
	s.mu.Lock()
	at := slices.Index(s.queue, turn)
	if at >= 0 {
		s.queue = slices.Delete(s.queue, at, at+1)
	}
	s.mu.Unlock()
	if at < 0 { // its turn came meanwhile
		s.leave()
	}
	return false
}

// leave hands the slot to the next in the queue.
func (s *slots) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.free < 0:
	case len(s.queue) > 0:
		close(s.queue[0])
		s.queue = s.queue[1:]
	default:
		s.free++
	}
}
