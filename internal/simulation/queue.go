package simulation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/internal/platform/pacing"
)

// Queue is a manager's work queue for one object. It uses the clock of the simulation and the default
// back-off of the manager's queues: the delay of a failing pass grows each time, unless there is an event.
type Queue struct {
	cluster *Cluster
	request reconcile.Request
	backOff *pacing.BackOff
	added   bool
	due     time.Time
	// idle counts the consecutive passes that only the previous pass asked for and before which nothing had
	// happened. began is when the last pass began, and known the facts at that time.
	idle  int
	began time.Time
	known facts
}

// facts show whether anything happened between two passes: the version of the cluster, and the number of
// events that are not delivered yet.
type facts struct {
	version     int64
	undelivered int
}

// mostIdle is the maximum number of consecutive idle passes, each within hurry after the previous one. A
// back-off causes five.
const mostIdle, hurry = 20, 100 * time.Millisecond

// NewQueue returns the queue of a starting manager, with its object enqueued.
func NewQueue(cluster *Cluster, name string) *Queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond,
		1000*time.Second)
	return &Queue{
		cluster: cluster,
		added:   true,
		request: reconcile.Request{NamespacedName: types.NamespacedName{Name: name}},
		backOff: pacing.NewBackOff(limiter, cluster.Now),
	}
}

// Add enqueues the object, like an event.
func (q *Queue) Add() { q.added = true }

// Added reports whether the object must be processed immediately.
func (q *Queue) Added() bool { return q.added }

// Due returns when the object is enqueued even if nothing happens, or zero for never.
func (q *Queue) Due() time.Time { return q.due }

// Wait advances the clock to the time when the object is due, and reports whether it ever is.
func (q *Queue) Wait() bool {
	if q.due.IsZero() {
		return false
	}
	q.cluster.Pass(max(q.due.Sub(q.cluster.Now()), 0))
	return true
}

// Take removes the object from the queue if it must be processed now, and reports whether it did.
func (q *Queue) Take() bool {
	if !q.added && (q.due.IsZero() || q.cluster.Now().Before(q.due)) {
		return false
	}
	q.watch()
	q.added, q.due = false, time.Time{}
	return true
}

// watch ends the simulation if the manager spins, which means that passes follow each other as fast as
// possible although nothing happens.
func (q *Queue) watch() {
	known := facts{q.cluster.Version(), q.cluster.Undelivered()}
	if q.added || known != q.known || q.cluster.Now().Sub(q.began) >= hurry {
		q.idle = 0
	}
	q.idle, q.began, q.known = q.idle+1, q.cluster.Now(), known
	if q.idle > mostIdle {
		panic(fmt.Sprintf(
			"%d passes in a row began at most %s after the one before, although nothing had happened",
			q.idle, hurry))
	}
}

// Done ends the processing of the object, which failed, or must be processed again after that time, or not at
// all if it is 0.
func (q *Queue) Done(after time.Duration, err error) {
	q.backOff.Progressed(q.request) // a manager that spins must be detected here, not slowed down
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
