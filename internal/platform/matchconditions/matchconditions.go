// Package matchconditions has the common parts of kinds whose objects select the pods that the API server
// sends to the webhook. Every replica watches these objects, and a match condition limits the requests to the
// selected pods (docs/decisions/0017-pods-of-sidecarsets.md).
package matchconditions

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of an expression. They are far below the API server's cost limit for a match condition. The API
// server would reject the pod if an expression exceeded that limit.
const (
	MaxLength = 8000
	MaxTerms  = 100
)

// Remembered is how long a term stays in the condition after it is no longer needed, because the caches of
// other replicas and API servers may be stale.
const Remembered = 30 * time.Second

// Memory adds terms to a scope immediately and removes them only after a delay. The zero value is ready to
// use, also concurrently.
type Memory[T any] struct {
	mu   sync.Mutex
	last map[string]remembered[T]
}

type remembered[T any] struct {
	term T
	// gone is the time since which the term is no longer needed. It is zero while the term is needed.
	gone time.Time
}

// Recall returns, in the order of their keys, the terms that are needed now, which asked returns, or were
// needed less than Remembered ago.
func (m *Memory[T]) Recall(asked func() map[string]T, now time.Time) []T {
	m.mu.Lock()
	defer m.mu.Unlock()

	if m.last == nil {
		m.last = map[string]remembered[T]{}
	}

	for key, r := range m.last {
		if r.gone.IsZero() {
			m.last[key] = remembered[T]{r.term, now}
		}
	}

	for key, term := range asked() {
		m.last[key] = remembered[T]{term: term}
	}

	maps.DeleteFunc(m.last, func(_ string, r remembered[T]) bool {
		return !r.gone.IsZero() && now.Sub(r.gone) >= Remembered
	})
	var terms []T
	for _, key := range slices.Sorted(maps.Keys(m.last)) {
		terms = append(terms, m.last[key].term)
	}

	return terms
}

// harmless matches the characters of names, label keys and label values.
var harmless = regexp.MustCompile(`^[-._/a-zA-Z0-9]*$`)

// Harmless reports whether the text may be put between quotes in an expression.
func Harmless(text string) bool { return harmless.MatchString(text) }

// Within returns an expression that is true for requests in the given namespaces. It is "false" if there are
// none and "true" if there are too many. Strings that cannot be the name of a namespace are ignored, since
// there are no requests in them.
func Within(namespaces []string) string {
	names := slices.DeleteFunc(slices.Sorted(slices.Values(namespaces)), func(name string) bool {
		return !Harmless(name) || name == ""
	})
	if len(names) == 0 {
		return "false"
	}
	text := "request.namespace in ['" + strings.Join(names, "', '") + "']"
	if len(text) > MaxLength {
		return "true"
	}
	return text
}
