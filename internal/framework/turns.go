package framework

import (
	"context"
	"sync"
)

// Numbers of turns for validations at the same time: of one namespace, and in total.
const (
	TurnsOfNamespace = 2
	TurnsAtOnce      = 8
)

// Turns limits how many of something are done at once, such as objects with patches that are validated, so that
// those of one namespace do not delay others; nil means no limit.
type Turns struct {
	all chan struct{}
	own int // how many one namespace may have
	mu  sync.Mutex
	// namespaces holds the namespaces that have turns, or wait for one.
	namespaces map[string]*turn
}

// turn is the state of a namespace.
type turn struct {
	places chan struct{}
	users  int
}

// NewTurns returns Turns for the validation of objects, which nobody has taken.
func NewTurns() *Turns { return NewTurnsOf(TurnsOfNamespace, TurnsAtOnce) }

// NewTurnsOf returns Turns that nobody has taken, with their numbers of one namespace and in total.
func NewTurnsOf(own, all int) *Turns {
	return &Turns{all: make(chan struct{}, all), own: own, namespaces: map[string]*turn{}}
}

// Wait waits until it is the turn of the namespace. came is false if ctx ended before; over ends
// the turn.
func (t *Turns) Wait(ctx context.Context, namespace string) (over func(), came bool) {
	if t == nil {
		return func() {}, true
	}

	t.mu.Lock()
	own := t.namespaces[namespace]
	if own == nil {
		own = &turn{places: make(chan struct{}, t.own)}
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
