package reconcile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/afloat-project/afloat/internal/platform/observe"
	"github.com/afloat-project/afloat/internal/platform/pacing"
)

// Loop is the reconciler of a kind. It calls the kind's pass, spaces out the passes of large objects, logs
// plans that are news, and requeues when the pass asks for that, regardless of the back-off.
type Loop struct {
	// Now returns the current time.
	Now func() time.Time
	// Every is the shortest time from the beginning of a pass to that of the next; 0 means no limit.
	Every time.Duration
	// Owner returns the UID of an object from the cache, empty if there is none.
	Owner func(ctx context.Context, name types.NamespacedName) (types.UID, error)
	// Pass reconciles an object once. It is called for an object that is gone, too, with an empty UID.
	Pass func(ctx context.Context, name types.NamespacedName, owner types.UID) (Outcome, error)
	// Forget drops what is kept about an object that is gone or was replaced by another of its name.
	Forget func(name types.NamespacedName, owner types.UID)

	memory  *pacing.Memory
	backOff *pacing.BackOff
	held    *heldByBudgets
}

// Outcome is the outcome of a pass.
type Outcome struct {
	// After is when to requeue although no event arrives; 0 means not at all.
	After time.Duration
	// Planning is how long it took to read what the plan is made from, and to make it. The next pass waits
	// for a multiple of that, so that more events come together.
	Planning time.Duration
	// Unfinished is true if there is more to do at once.
	Unfinished bool
	// Progress is true if something was done, so that a pass that follows at once finds a new state.
	Progress bool
	// HeldByBudget is true if a pod budget holds some of the object's pods. The object is requeued once
	// budgets of its namespace allow more; for a cluster-scoped object these are the budgets of all
	// namespaces.
	HeldByBudget bool
	// Headline is the plan in words, empty if there was none; it is logged when it changes (OPS-096). Record
	// returns the plan as keys and values.
	Headline string
	Record   func() []any
}

// Retry returns what a pass returns that ended with err. It requeues soon if the plan was stale, whatever else
// failed, and leaves other errors to the back-off.
func (o Outcome) Retry(err error) (Outcome, error) {
	some, each := staleness(err)
	if some {
		MinRequeue(&o.After, RetrySoon)
	}
	if each {
		return o, nil
	}
	return o, err
}

// NewLoop completes a Loop. No object waits for longer than atMost. limiter is the back-off of failing
// objects; nil means that of controller-runtime.
func NewLoop(loop Loop, atMost time.Duration, limiter workqueue.TypedRateLimiter[ctrl.Request]) *Loop {
	loop.memory, loop.backOff, loop.held = pacing.NewMemory(loop.Every, atMost, loop.Forget),
		pacing.NewBackOff(limiter, loop.Now), &heldByBudgets{}
	return &loop
}

// BackOff returns the rate limiter that the controller of the loop must use.
func (l *Loop) BackOff() workqueue.TypedRateLimiter[ctrl.Request] { return l.backOff }

// Reconcile implements the reconciler of controller-runtime.
func (l *Loop) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	name, begin := request.NamespacedName, l.Now()
	owner, err := l.Owner(ctx, name)
	if err != nil {
		return ctrl.Result{}, err
	}

	l.memory.Is(name, owner)
	if wait := l.memory.Wait(name, begin); wait > 0 {
		return l.backOff.PutOff(request, wait), nil
	}

	done, err := l.Pass(ctx, name, owner)
	l.held.set(name, done.HeldByBudget)
	observe.TracePlan(ctx, done.Headline)
	// After an error the queue decides when to retry.
	l.memory.Passed(name, begin, done.Planning, done.Unfinished || err != nil)
	if done.Headline != "" && l.memory.News(name, done.Headline) {
		log.FromContext(ctx).V(2).Info("Plan", done.Record()...)
	}
	if done.Progress {
		l.backOff.Progressed(request)
	}

	return l.backOff.Answer(request, done.After, err)
}
