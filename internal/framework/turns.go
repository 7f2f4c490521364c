package framework

import (
	"context"
	"sync"
)

// Numbers of turns at the same time: of one namespace, and in total.
const (
	TurnsOfNamespace = 2
	TurnsAtOnce      = 8
)

// Turns limits how many objects with patches are validated at once, so that those of one namespace do not delay
// others; nil means no limit.
type Turns struct {
	all chan struct{}
	mu  sync.Mutex
	// namespaces holds the namespaces whose objects are being validated, or waiting.
	namespaces map[string]*turn
}

// turn is the state of a namespace.
type turn struct {
	places chan struct{}
	users  int
}

// NewTurns returns Turns that nobody has taken.
func NewTurns() *Turns {
	return &Turns{all: make(chan struct{}, TurnsAtOnce), namespaces: map[string]*turn{}}
}

// Wait waits until an object of the namespace may be validated. came is false if ctx ended before; over ends
// the turn.
func (t *Turns) Wait(ctx context.Context, namespace string) (over func(), came bool) {
	if t == nil {
		return func() {}, true
	}

	t.mu.Lock()
	own := t.namespaces[namespace]
	if own == nil {
		own = &turn{places: make(chan struct{}, TurnsOfNamespace)}
		t.namespaces[namespace] = own
	}

	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.namespaces, namespace)
		}
	}
	// An object that waits for its namespace takes no place in all.
	for i, places := range []chan struct{}{own.places, t.all} {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-own.places
			}
			leave()
			return nil, false
		}
	}

	return func() { <-t.all; <-own.places; leave() }, true
}
