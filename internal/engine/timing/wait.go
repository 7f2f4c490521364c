package timing

import "time"

// MinWaitUntil shortens a wait if the given time comes sooner; a wait of 0 means forever. The zero time never
// comes. A time in the past is ignored: this plan was made after it, and another one would be the same.
func MinWaitUntil(wait *time.Duration, now, at time.Time) {
	if !at.IsZero() {
		MinWait(wait, at.Sub(now))
	}
}

// MinWait is [MinWaitUntil] for a time after the given duration.
func MinWait(wait *time.Duration, left time.Duration) {
	if left > 0 && (*wait == 0 || left < *wait) {
		*wait = left
	}
}
