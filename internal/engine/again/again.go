// Package again computes when a plan is made again although nothing happens. All kinds use it, so that none
// of them can ask for a time in the past: its plans would follow each other without pause, regardless of the
// back-off.
package again

import "time"

// At shortens a wait if the given time comes sooner; a wait of 0 means forever. The zero time never comes. A
// time in the past is ignored: this plan was made after it, and another one would be the same.
func At(wait *time.Duration, now, at time.Time) {
	if !at.IsZero() {
		In(wait, at.Sub(now))
	}
}

// In is [At] for a time after the given duration.
func In(wait *time.Duration, left time.Duration) {
	if left > 0 && (*wait == 0 || left < *wait) {
		*wait = left
	}
}
