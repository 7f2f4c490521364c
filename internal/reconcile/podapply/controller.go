package podapply

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/waiting"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Plan is the plan of a kind. It embeds the decisions that all kinds of workloads share.
type Plan interface {
	comparable
	Shared() *podplan.Plan
}

// Kind is what a kind of workloads does its own way; [Controller] does everything else. O is a pointer to the
// type of its objects, P a pointer to the type of its plans, and M what it keeps of an object from one pass
// to the next.
type Kind[O reconcile.Object, P Plan, M any] interface {
	// Plan reads what the object owns, and decides what to do about it. It must call [Memory.HoldBack] with
	// the snapshot. The session has no plan yet.
	Plan(ctx context.Context, s *Session[O, P, M], now time.Time) (P, error)
	// Apply carries out all of the plan but the status, and records the kind's own events. It goes on with
	// other pods where one fails.
	Apply(ctx context.Context, s *Session[O, P, M]) *Result
	// Progress returns how far the rollout of the object is.
	Progress(plan P) waiting.Progress
	// Status returns the status that the object shall have after the plan was carried out, nil if that is the
	// one it has, and reports whether nothing changes but numbers, so that the write may wait a moment.
	Status(s *Session[O, P, M], result *Result, now time.Time) (status any, onlyNumbers bool)
	// Fields returns the object's selector, its status, and the collision count in the status.
	Fields(object O) Fields
}

// Fields are the fields of a workload that every kind has.
type Fields struct {
	// Selector finds revisions without a controller; nil for a kind without revisions.
	Selector *metav1.LabelSelector
	// Status points to the status, Collisions to the collision count in it.
	Status     any
	Collisions **int32
}

// Session is one pass over an object, together with what is kept of the object for later passes.
type Session[O reconcile.Object, P Plan, M any] struct {
	*Execution
	*Memory
	// Object is the object from the cache, with own writes laid over it. It must not be changed.
	Object O
	// Plan is the plan that is carried out.
	Plan P
	// Kept is what the kind keeps of the object.
	Kept *M

	status *reconcile.StatusThrottle
}

// StatusWritten notes that the kind has written the status itself, since something had to come after it.
func (s *Session[O, P, M]) StatusWritten() { s.status.Wait(s.Now(), false) }

// Once records an event about the object, unless the last one of that reason had the same message. An empty
// message records nothing and forgets the last one (CS-237).
func (s *Session[O, P, M]) Once(eventType, reason, message string) {
	s.Memory.Once(s.Execution, eventType, reason, message)
}

// kept is what a Controller keeps of one object.
type kept[M any] struct {
	Memory
	status reconcile.StatusThrottle
	kind   M
}

// Controller brings the objects of a kind a step further in each pass: it reads them and what they own, makes
// a plan, carries it out, and writes the status last (CS-070, ASTS-115, ADS-043).
type Controller[O reconcile.Object, P Plan, M any] struct {
	API    *reconcile.API
	Events reconcile.Recorder
	Kind   Kind[O, P, M]
	// Forgotten is called for each object that is gone; nil if the kind has nothing to forget.
	Forgotten func(types.UID)

	objects reconcile.Memory[kept[M]]
}

// Run makes one pass over an object. The plan is the one that was carried out; it is nil if there was nothing
// to plan. An error means that something failed that a retry may repair; the object's conditions and events
// report it too.
func (c *Controller[O, P, M]) Run(
	ctx context.Context, name types.NamespacedName, owner types.UID,
) (plan P, outcome Outcome, err error) {
	now := c.API.Now()
	object, err := reconcile.Begin[O](ctx, c.API, name, owner)
	if err != nil || object == *new(O) {
		return plan, outcome, err
	}

	kept := c.objects.Of(owner)
	session := &Session[O, P, M]{Memory: &kept.Memory, Object: object, Kept: &kept.kind, status: &kept.status}
	begun := c.API.Now()
	if plan, err = c.Kind.Plan(ctx, session, now); err != nil {
		return plan, outcome, err
	}
	planning := c.API.Now().Sub(begun)

	fields := c.Kind.Fields(object)
	session.Plan, session.Execution = plan, NewExecution(c.API, c.Events, object, fields.Selector, plan.Shared())
	session.Collided = func(ctx context.Context, count int32) error {
		changed := c.Kind.Fields(object.DeepCopyObject().(O))
		*changed.Collisions = &count
		return session.PatchStatus(ctx, object, fields.Status, changed.Status)
	}
	result := c.Kind.Apply(ctx, session)

	outcome, err = kept.Finish(session.Execution, result, planning, c.Kind.Progress(plan), func() (time.Duration, error) {
		status, onlyNumbers := c.Kind.Status(session, result, c.API.Now())
		// the next pass writes what this one has outdated itself
		if status == nil || result.OwnerWritten || plan.Shared().NewRevision != nil && result.Retry {
			return 0, nil
		}
		return kept.status.Write(ctx, session.Writer, object, fields.Status, status, onlyNumbers)
	})
	return plan, outcome, err
}

// Loop returns the reconciler of the controller of that name, which meters the passes. limiter is the
// back-off of objects that fail; nil means the library's.
func (c *Controller[O, P, M]) Loop(
	name string, limiter workqueue.TypedRateLimiter[ctrl.Request],
) (*reconcile.Loop, error) {
	meters := NewMeters(name)
	loop := reconcile.Loop{
		Now:   c.API.Now,
		Owner: reconcile.UIDs[O](c.API),
		Pass: func(ctx context.Context, name types.NamespacedName, owner types.UID) (reconcile.Outcome, error) {
			if owner == "" {
				return reconcile.Outcome{}, nil
			}
			plan, outcome, err := c.Run(ctx, name, owner)
			if plan == *new(P) {
				return reconcile.Outcome{}, err
			}
			meters.Observe(name, plan.Shared(), outcome)
			return outcome.Loop(plan.Shared()), err
		},
		Forget: func(name types.NamespacedName, uid types.UID) {
			c.Forget(uid)
			meters.Forget(name)
		},
	}
	return reconcile.NewLoop(loop, pauseAtMost, limiter), reconcile.Register(meters.All()...)
}

// Forget drops what is kept of an object that is gone.
func (c *Controller[O, P, M]) Forget(uid types.UID) {
	c.API.Own.Forget(uid)
	c.objects.Forget(uid)
	if c.Forgotten != nil {
		c.Forgotten(uid)
	}
}

// pauseAtMost is the longest pause between two plans of a workload.
const pauseAtMost = time.Second
