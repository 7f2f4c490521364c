package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/again"
)

// Memory is what a controller keeps of each owner between passes. An owner is worked on by one worker at a
// time, so that what is kept of it needs no lock of its own. The zero value is empty.
type Memory[M any] struct {
	mu sync.Mutex
	of map[types.UID]*M
}

// Of returns what is kept of an owner; at first that is the zero value.
func (m *Memory[M]) Of(owner types.UID) *M {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.of[owner]
	if kept == nil {
		if m.of == nil {
			m.of = map[types.UID]*M{}
		}
		kept = new(M)
		m.of[owner] = kept
	}
	return kept
}

// Forget drops what is kept of an owner that is gone.
func (m *Memory[M]) Forget(owner types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, owner)
}

// News is what events that repeat were last about, by reason. The zero value has told nothing.
type News struct{ last map[string]string }

// Is tells whether an event is news: it is about something else than the last one of its reason. About
// nothing is none, and forgets the last.
func (n *News) Is(reason, about string) bool {
	if n.last[reason] == about {
		return false
	}
	if n.last == nil {
		n.last = map[string]string{}
	}
	n.last[reason] = about
	return about != ""
}

// MinRequeue lowers a time to come back to another one, if that is sooner; 0 means not at all.
func MinRequeue(after *time.Duration, other time.Duration) { again.In(after, other) }
