package pacing

import (
	"math/rand/v2"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	first = 500 * time.Millisecond
	// The longestRetry delay differs from node to node, so that many nodes do not retry at the same time.
	longestRetry, spread = 50 * time.Second, 5 * time.Second
)

// RetryLimiter returns the rate limiter of one queue. The delay begins at 0.5 s and doubles with each failure, up
// to 50 to 55 s (ND-059, CRR-098).
func RetryLimiter[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](first, longestRetry+rand.N(spread))
}
