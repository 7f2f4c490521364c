package pacing

import (
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// FairQueue returns a function that makes the work queue of a controller with this number of workers. Namespaces
// take turns in it, so that one with thousands of objects does not keep the objects of others waiting. No
// namespace gets all workers, so that long passes of one do not either.
func FairQueue(workers int) func(
	string, workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(
		name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
	) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		turns := newTurns(workers)
		queue := workqueue.NewTypedWithConfig(
			workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: turns})
		delaying := workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: &fairQueue{queue, turns}})
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, DelayingQueue: delaying})
	}
}

// fairQueue is a work queue that tells its turns which passes have ended.
type fairQueue struct {
	workqueue.TypedInterface[reconcile.Request]
	turns *turns
}

// Done implements workqueue.TypedInterface. A worker that is told "nothing" by the queue sleeps until something
// is added. It is not woken when a pass of a namespace ends for whose next request no worker was left: the
// worker that calls Done takes that one.
func (q *fairQueue) Done(request reconcile.Request) {
	q.turns.done(request)
	q.TypedInterface.Done(request)
}

// turns stores the requests that are due, by tenant. It implements workqueue.Queue.
type turns struct {
	workers int

	mu      sync.Mutex
	tenants map[string]*tenant
	// order holds the tenants that have requests, the one whose turn it is first.
	order []*tenant
}

// tenant is a namespace. An object without a namespace is one of its own.
type tenant struct {
	name     string
	requests []reconcile.Request
	// running is how many workers make a pass over one of its objects.
	running int
}

func newTurns(workers int) *turns {
	return &turns{workers: max(workers, 1), tenants: map[string]*tenant{}}
}

func tenantOf(request reconcile.Request) string {
	if request.Namespace == "" {
		return "/" + request.Name
	}
	return request.Namespace
}

// Touch implements workqueue.Queue.
func (t *turns) Touch(reconcile.Request) {}

// Push implements workqueue.Queue.
func (t *turns) Push(request reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.tenants[tenantOf(request)]
	if of == nil {
		of = &tenant{name: tenantOf(request)}
		t.tenants[of.name] = of
	}
	if len(of.requests) == 0 {
		t.order = append(t.order, of)
	}
	of.requests = append(of.requests, request)
}

// Len implements workqueue.Queue. It returns how many requests a worker may take now, or less if it is not 0.
func (t *turns) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.next(); i >= 0 {
		return len(t.order[i].requests)
	}
	return 0
}

// Pop implements workqueue.Queue. It is called only if Len is not 0.
func (t *turns) Pop() reconcile.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.next()
	of := t.order[i]
	t.order = slices.Delete(t.order, i, i+1)
	request := of.requests[0]
	if of.requests = of.requests[1:]; len(of.requests) > 0 {
		t.order = append(t.order, of)
	}
	of.running++
	return request
}

// done records that the pass over a request has ended.
func (t *turns) done(request reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.tenants[tenantOf(request)]
	if of == nil {
		return
	}
	if of.running--; of.running == 0 && len(of.requests) == 0 {
		delete(t.tenants, of.name)
	}
}

// next returns the index of the tenant whose turn it is, and -1 if none may have another worker: the one that has
// the fewest, and among those the one that has waited longest. It finds one without a worker soon, since no more
// tenants have one than there are workers. A quarter of the workers is left for those that come.
func (t *turns) next() int {
	next, fewest := -1, max(t.workers*3/4, 1)
	for i, of := range t.order {
		if of.running < fewest {
			next, fewest = i, of.running
		}
		if fewest == 0 {
			break
		}
	}
	return next
}
