package simulation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/internal/platform/pacing"
)

// Queue is a manager's work queue for one object, with the clock of the simulation and the back-off that the
// queues of the manager have by default: a pass that fails is repeated later each time, unless an event
// comes.
type Queue struct {
	cluster *Cluster
	request reconcile.Request
	backOff *pacing.BackOff
	added   bool
	due     time.Time
	// idle is how many passes in a row nothing had called for but the pass before, and nothing had happened
	// since; began is when the last one did, and known what there was then.
	idle  int
	began time.Time
	known facts
}

// facts tell passes apart that do the same: what there is, and how much of it has come to the caches.
type facts struct {
	version     int64
	undelivered int
}

// mostIdle is how many passes in a row may find nothing new, each within hurry of the one before. A back-off
// makes five.
const mostIdle, hurry = 20, 100 * time.Millisecond

// NewQueue returns the queue of a manager that starts: its object is in it.
func NewQueue(cluster *Cluster, name string) *Queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond,
		1000*time.Second)
	return &Queue{
		cluster: cluster,
		added:   true,
		request: reconcile.Request{NamespacedName: types.NamespacedName{Name: name}},
		backOff: pacing.NewBackOff(limiter),
	}
}

// Add puts the object into the queue, as an event does.
func (q *Queue) Add() { q.added = true }

// Added tells whether the object is to be worked on at once.
func (q *Queue) Added() bool { return q.added }

// Due is when the object comes into the queue although nothing happens; zero for never.
func (q *Queue) Due() time.Time { return q.due }

// Wait lets the time pass until the object is due, and tells whether it ever is.
func (q *Queue) Wait() bool {
	if q.due.IsZero() {
		return false
	}
	q.cluster.Pass(max(q.due.Sub(q.cluster.Now()), 0))
	return true
}

// Take takes the object out of the queue, if it is to be worked on now.
func (q *Queue) Take() bool {
	if !q.added && (q.due.IsZero() || q.cluster.Now().Before(q.due)) {
		return false
	}
	q.watch()
	q.added, q.due = false, time.Time{}
	return true
}

// watch ends the simulation if the manager spins: passes follow each other without any news, as fast as they
// can (OPS-106).
func (q *Queue) watch() {
	known := facts{q.cluster.version, q.cluster.Undelivered()}
	if q.added || known != q.known || q.cluster.Now().Sub(q.began) >= hurry {
		q.idle = 0
	}
	q.idle, q.began, q.known = q.idle+1, q.cluster.Now(), known
	if q.idle > mostIdle {
		panic(
			fmt.Sprintf(
				"%d passes in a row began at most %s after the one before, although nothing had happened",
				q.idle, hurry))
	}
}

// Done ends the work on the object, which wants to be worked on again after that time, 0 for not at all, or
// has failed.
func (q *Queue) Done(after time.Duration, err error) {
	q.backOff.Progressed(q.request) // one that spins is found here, not slowed down
	result, err := q.backOff.Answer(q.request, after, err)
	if err != nil {
		after = q.backOff.When(q.request)
	} else {
		after = result.RequeueAfter
		q.backOff.Forget(q.request)
	}
	if due := q.cluster.Now().Add(after); after > 0 && (q.due.IsZero() || due.Before(q.due)) {
		q.due = due
	}
}
