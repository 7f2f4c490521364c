// Package firstseen remembers since when this process knows the entries of a status that others date, by its
// own clock. How old an entry is cannot be told from its date: a process whose clock is ahead of that of the
// writer would take what was just written for long over.
package firstseen

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Entry is an entry of a map from names to times, in a list of that name. Dated tells two entries of one name
// apart.
type Entry struct {
	List, Name string
	Dated      int64
}

// Of is the entry of a list.
func Of(list, name string, at metav1.Time) Entry { return Entry{list, name, at.Unix()} }

// Times has when entries were seen first. The zero value knows of none.
type Times map[Entry]time.Time

// Note adds the entries of a list to what is known now; former is what was known before. Entries are dated in
// whole seconds, and so is when they were seen.
func (t Times) Note(former Times, list string, entries map[string]metav1.Time, now time.Time) {
	now = now.Truncate(time.Second)
	for name, at := range entries {
		entry := Of(list, name, at)
		if seen, known := former[entry]; known && !seen.After(now) { // else the clock was set back
			t[entry] = seen
		} else {
			t[entry] = now
		}
	}
}

// Since is since when an entry counts: since it was seen. One that was not noted yet is new. Where nothing is
// noted at all, such as in a rehearsal, its date counts.
func (t Times) Since(list, name string, at metav1.Time, now time.Time) time.Time {
	if t == nil {
		return at.Time
	}
	if seen, known := t[Of(list, name, at)]; known {
		return seen
	}
	return now
}

// HalfOver tells who did not see an entry come whether half its life may be over. If it is dated ahead,
// nobody knows here how old it is.
func HalfOver(at time.Time, life time.Duration, now time.Time) bool {
	age := now.Sub(at)
	return age >= life/2 || age < -tolerance
}

// tolerance is how far ahead entries are dated by clocks that are right: the dates of some are rounded up.
const tolerance = 2 * time.Second
