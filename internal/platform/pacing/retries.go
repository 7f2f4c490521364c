package pacing

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// What failed is tried again after a second, and after twice the time each time it fails again, up to a minute.
const firstRetry, lastRetry = time.Second, time.Minute

// Retries tells when objects may be tried again that could not be written. The back-off of the queue is of the whole pass, which any event
// calls for: without a pause of its own, one refused pod of a busy object would be tried at every event. The zero value holds nothing back.
type Retries struct {
	failed map[types.UID]retry
}

type retry struct {
	about, why string
	wait       time.Duration
	until      time.Time
}

// Failed notes that an object could not be written. about is what was tried: something else may be tried at once.
func (r *Retries) Failed(uid types.UID, about string, err error, now time.Time) {
	wait := firstRetry
	if last, ok := r.failed[uid]; ok && last.about == about {
		wait = min(2*last.wait, lastRetry)
	}
	if r.failed == nil {
		r.failed = map[types.UID]retry{}
	}
	r.failed[uid] = retry{about, err.Error(), wait, now.Add(wait)}
}

// Done forgets an object: it was written.
func (r *Retries) Done(uid types.UID) { delete(r.failed, uid) }

// Has tells whether the last attempt failed.
func (r *Retries) Has(uid types.UID, about string) bool {
	last, ok := r.failed[uid]
	return ok && last.about == about
}

// Held returns until when an object is held back, and why; the zero time if it is not.
func (r *Retries) Held(uid types.UID, about string, now time.Time) (until time.Time, why string) {
	if last := r.failed[uid]; last.about == about && now.Before(last.until) {
		return last.until, last.why
	}
	return time.Time{}, ""
}

// All returns the objects that are held back, with the times until when.
func (r *Retries) All(about string, now time.Time) map[types.UID]time.Time {
	held := map[types.UID]time.Time{}
	for uid := range r.failed {
		if until, _ := r.Held(uid, about, now); !until.IsZero() {
			held[uid] = until
		}
	}
	return held
}

// Keep forgets all objects but those.
func (r *Retries) Keep(present func(types.UID) bool) {
	for uid := range r.failed {
		if !present(uid) {
			delete(r.failed, uid)
		}
	}
}
