// Package retry provides the back-off of the node daemon's queues.
package retry

import (
	"math/rand/v2"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	first = 500 * time.Millisecond
	// The longest delay differs from node to node, so that many nodes do not retry at the same time.
	longest, spread = 50 * time.Second, 5 * time.Second
)

// Limiter returns the rate limiter of one queue. The delay begins at 0.5 s and doubles with each failure, up
// to 50 to 55 s (ND-059, CRR-098).
func Limiter[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](first, longest+rand.N(spread))
}
