package reconcile

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/timing"
)

// Memory holds what a controller keeps about each owner between passes. Only one worker at a time works on an
// owner, so that what is kept needs no lock of its own. The zero value is empty.
type Memory[M any] struct {
	mu sync.Mutex
	of map[types.UID]*M
}

// Of returns what is kept of an owner, at first the zero value.
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

// Find returns what is kept of an owner, nil if that is nothing.
func (m *Memory[M]) Find(owner types.UID) *M {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[owner]
}

// Forget drops what is kept of an owner that is gone.
func (m *Memory[M]) Forget(owner types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, owner)
}

// News remembers what repeated events were last about, by reason. The zero value is ready for use.
type News struct{ last map[string]string }

// Is reports whether an event is news: it is about something else than the last event of the same reason. An
// empty about is never news, and clears what was remembered for the reason.
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

// MinRequeue lowers a requeue delay to another one if that is sooner; 0 means not at all.
func MinRequeue(after *time.Duration, other time.Duration) { timing.MinWait(after, other) }
