// Package again has when a plan is made again although nothing happens. All kinds count it the same way, so
// that none of them can ask for a time that has passed: its plans would follow each other without pause,
// whatever the back-off says.
package again

import "time"

// At makes a wait shorter if that time comes sooner; a wait of 0 is for ever. The zero time never comes. One
// that has passed asks for nothing either: this plan was made after it, and another one would say the same.
func At(wait *time.Duration, now, at time.Time) {
	if !at.IsZero() {
		In(wait, at.Sub(now))
	}
}

// In is At for a time that is that far away.
func In(wait *time.Duration, left time.Duration) {
	if left > 0 && (*wait == 0 || left < *wait) {
		*wait = left
	}
}
