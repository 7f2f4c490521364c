package timing

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A failed attempt is repeated after one second. The pause doubles with every further failure, up to a
// minute.
const firstRetry, lastRetry = time.Second, time.Minute

// Retry records when a failed attempt may be repeated. The back-off of the work queue is not enough: every
// event starts a pass, so that a pod whose write was refused would be tried again at every event of a busy
// object. The zero value holds nothing back.
type Retry struct {
	about, why string
	wait       time.Duration
	until      time.Time
}

// Failed records a failed attempt. about identifies what was tried; something else may be tried at once.
func (r *Retry) Failed(about string, err error, now time.Time) {
	wait := firstRetry
	if r.wait > 0 && r.about == about {
		wait = min(2*r.wait, lastRetry)
	}
	*r = Retry{about, err.Error(), wait, now.Add(wait)}
}

// Last returns the time until which the next attempt is held back, and the error of the last one. It returns
// zero values if the last attempt did not fail, or was about something else.
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

// Failed records that an object could not be written. about identifies what was tried; something else may be
// tried at once.
func (r *Retries) Failed(uid types.UID, about string, err error, now time.Time) {
	if r.failed == nil {
		r.failed = map[types.UID]Retry{}
	}
	retry := r.failed[uid]
	retry.Failed(about, err, now)
	r.failed[uid] = retry
}

// Done forgets an object that was written.
func (r *Retries) Done(uid types.UID) { delete(r.failed, uid) }

// Has reports whether the last attempt failed.
func (r *Retries) Has(uid types.UID, about string) bool {
	last, ok := r.failed[uid]
	return ok && last.about == about
}

// Held returns the time until which an object is held back, and the reason. It returns the zero time if the
// object is not held back.
func (r *Retries) Held(uid types.UID, about string, now time.Time) (until time.Time, why string) {
	if last := r.failed[uid]; last.about == about && now.Before(last.until) {
		return last.until, last.why
	}
	return time.Time{}, ""
}

// All returns the objects that are held back, with the times until which they are.
func (r *Retries) All(about string, now time.Time) map[types.UID]time.Time {
	held := map[types.UID]time.Time{}
	for uid := range r.failed {
		if until, _ := r.Held(uid, about, now); !until.IsZero() {
			held[uid] = until
		}
	}
	return held
}

// Keep forgets all objects for which present returns false.
func (r *Retries) Keep(present func(types.UID) bool) {
	for uid := range r.failed {
		if !present(uid) {
			delete(r.failed, uid)
		}
	}
}
