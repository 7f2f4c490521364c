package stop

import (
	"context"
	"sync"
)

// hooksAtOnce limits the preStop hooks that run commands at the same time in all containers of the node, because each
// holds memory until it ends.
const hooksAtOnce = 192

// Places limits the preStop hooks that run commands in the containers of the node at the same time, for all
// Stoppers that have it. A namespace gets a third of the places that are free, because hooks last as long as
// users like, and a tenant with a few namespaces would take all places otherwise. A nil Places has no limit.
type Places struct {
	mu    sync.Mutex
	taken int
	// of counts the taken places by namespace.
	of map[string]int
	// given is closed when a place is given back.
	given chan struct{}
}

// NewPlaces returns the places of a node.
func NewPlaces() *Places {
	return &Places{of: map[string]int{}, given: make(chan struct{})}
}

// take waits until the namespace may have another place, or returns the error of the context.
func (p *Places) take(ctx context.Context, namespace string) error {
	for p != nil {
		p.mu.Lock()
		if free := hooksAtOnce - p.taken; free > 0 && p.of[namespace] < max(free/3, 1) {
			p.taken++
			p.of[namespace]++
			p.mu.Unlock()
			return nil
		}
		given := p.given
		p.mu.Unlock()
		select {
		case <-given:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// give gives a place of the namespace back.
func (p *Places) give(namespace string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[namespace]--; p.of[namespace] == 0 {
		delete(p.of, namespace)
	}
	close(p.given)
	p.given = make(chan struct{})
}
