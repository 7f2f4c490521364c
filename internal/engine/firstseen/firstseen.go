// Package firstseen remembers since when this process knows the entries of a status that others date, by its own clock. How old an entry is
// cannot be told from its date: a process whose clock is ahead of that of the writer would take what was just written for long over.
package firstseen

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Entry is an entry of a map from names to times, in a list of that name. Dated tells two entries of one name apart.
type Entry struct {
	List, Name string
	Dated      int64
}

// Of is the entry of a list.
func Of(list, name string, at metav1.Time) Entry { return Entry{list, name, at.Unix()} }

// Times has when entries were seen first. The zero value knows of none.
type Times map[Entry]time.Time

// Note adds the entries of a list to what is known now; former is what was known before. Entries are dated in whole seconds, and so is when
// they were seen.
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

// Since is since when an entry counts: since it was seen, or if that is not known, such as in a rehearsal, since its date.
func (t Times) Since(list, name string, at metav1.Time) time.Time {
	if seen, known := t[Of(list, name, at)]; known {
		return seen
	}
	return at.Time
}
