// Package retries says when a failed attempt may be repeated.
package retries

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A failed attempt is repeated after one second. The pause doubles with every further failure, up to a
// minute.
const firstRetry, lastRetry = time.Second, time.Minute

// Retry says when a failed attempt may be repeated. The back-off of the work queue is not enough: every event
// starts a pass, so that a pod whose write was refused would be tried again at every event of a busy object.
// The zero value holds nothing back.
type Retry struct {
	about, why string
	wait       time.Duration
	until      time.Time
}

// Failed notes that an attempt failed. about is what was tried: something else may be tried at once.
func (r *Retry) Failed(about string, err error, now time.Time) {
	wait := firstRetry
	if r.wait > 0 && r.about == about {
		wait = min(2*r.wait, lastRetry)
	}
	*r = Retry{about, err.Error(), wait, now.Add(wait)}
}

// Last returns how the last attempt failed, and until when the next one is held back. It returns zero values
// if the last attempt did not fail, or was about something else.
func (r *Retry) Last(about string) (until time.Time, why string) {
	if r.about != about {
		return time.Time{}, ""
	}
	return r.until, r.why
}

// Retries holds a Retry for each of many objects. The zero value holds nothing back.
type Retries struct {
	failed map[types.UID]Retry
}

// Failed notes that an object could not be written. about is what was tried: something else may be tried at
// once.
func (r *Retries) Failed(uid types.UID, about string, err error, now time.Time) {
	if r.failed == nil {
		r.failed = map[types.UID]Retry{}
	}
	retry := r.failed[uid]
	retry.Failed(about, err, now)
	r.failed[uid] = retry
}

// Done forgets an object: it was written.
func (r *Retries) Done(uid types.UID) { delete(r.failed, uid) }

// Has reports whether the last attempt failed.
func (r *Retries) Has(uid types.UID, about string) bool {
	last, ok := r.failed[uid]
	return ok && last.about == about
}

// Held returns until when an object is held back, and why. It returns the zero time if the object is not held
// back.
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

// Keep forgets all objects for which present is false.
func (r *Retries) Keep(present func(types.UID) bool) {
	for uid := range r.failed {
		if !present(uid) {
			delete(r.failed, uid)
		}
	}
}
