// Package firstseen remembers since when this process has known the entries of a status that others date, by
// its own clock. The age of an entry cannot be computed from its date: a process whose clock is ahead of the
// writer's would take a new entry for one that is long over.
package firstseen

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Entry is an entry of a map from names to times, in the list of that name. Dated distinguishes two entries
// of the same name.
type Entry struct {
	List, Name string
	Dated      int64
}

// Of returns the entry of a list.
func Of(list, name string, at metav1.Time) Entry { return Entry{list, name, at.Unix()} }

// Times contains when entries were first seen. The zero value is empty.
type Times map[Entry]time.Time

// Note adds the entries of a list to what is known now; former is what was known before. Entries are dated in
// whole seconds, and so are the times when they were first seen.
func (t Times) Note(former Times, list string, entries map[string]metav1.Time, now time.Time) {
	now = now.Truncate(time.Second)
	for name, at := range entries {
		entry := Of(list, name, at)
		if seen, known := former[entry]; known && !seen.After(now) { // otherwise the clock was set back
			t[entry] = seen
		} else {
			t[entry] = now
		}
	}
}

// Since returns the time from which an entry counts: when it was first seen. An entry that was not noted yet
// is new. If nothing is noted at all, as in a rehearsal, its date counts.
func (t Times) Since(list, name string, at metav1.Time, now time.Time) time.Time {
	if t == nil {
		return at.Time
	}
	if seen, known := t[Of(list, name, at)]; known {
		return seen
	}
	return now
}

// HalfOver reports whether half of an entry's life may be over, for callers that did not see when the entry
// was written. It is true for an entry dated in the future, because its age cannot be known here.
func HalfOver(at time.Time, life time.Duration, now time.Time) bool {
	age := now.Sub(at)
	return age >= life/2 || age < -tolerance
}

// tolerance is how far in the future entries may be dated by correct clocks, because some dates are rounded
// up.
const tolerance = 2 * time.Second
