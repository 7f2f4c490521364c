package podapply

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"

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

	of *reconcile.Session[O, kept[M]]
}

// StatusWritten notes that the kind has written the status itself, since something had to come after it.
func (s *Session[O, P, M]) StatusWritten() { s.of.StatusMayWait(false) }

// Once records an event about the object, unless the last one of that reason had the same message. An empty
// message records nothing and forgets the last one (CS-237).
func (s *Session[O, P, M]) Once(eventType, reason, message string) {
	s.Memory.Once(s.Execution, eventType, reason, message)
}

// kept is what a Controller keeps of one object.
type kept[M any] struct {
	Memory
	kind M
}

// Controller brings the objects of a kind a step further in each pass: it reads them and what they own, makes
// a plan, carries it out, and writes the status last (CS-070, ASTS-115, ADS-043).
type Controller[O reconcile.Object, P Plan, M any] struct {
	reconcile.Controller[O, kept[M]]
	Kind Kind[O, P, M]
}

// New returns a controller of a kind.
func New[O reconcile.Object, P Plan, M any](
	api *reconcile.API, events reconcile.Recorder, kind Kind[O, P, M],
) *Controller[O, P, M] {
	return &Controller[O, P, M]{
		Controller: reconcile.Controller[O, kept[M]]{API: api, Events: events, AtMost: pauseAtMost},
		Kind:       kind,
	}
}

// Run makes one pass over an object. The plan is the one that was carried out; it is nil if there was nothing
// to plan. An error means that something failed that a retry may repair; the object's conditions and events
// report it too.
func (c *Controller[O, P, M]) Run(
	ctx context.Context, name types.NamespacedName, owner types.UID,
) (plan P, outcome Outcome, err error) {
	of, err := c.Begin(ctx, name, owner)
	if err != nil || of == nil {
		return plan, outcome, err
	}
	return c.pass(ctx, of)
}

func (c *Controller[O, P, M]) pass(
	ctx context.Context, of *reconcile.Session[O, kept[M]],
) (plan P, outcome Outcome, err error) {
	object, kept := of.Object, of.Kept
	session := &Session[O, P, M]{Memory: &kept.Memory, Object: object, Kept: &kept.kind, of: of}
	begun := c.API.Now()
	if plan, err = c.Kind.Plan(ctx, session, of.Begun); err != nil {
		return plan, outcome, err
	}
	planning := c.API.Now().Sub(begun)

	fields := c.Kind.Fields(object)
	session.Plan, session.Execution = plan, NewExecution(of.Writer, c.Events, object, fields.Selector, plan.Shared())
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
		return of.WriteStatus(ctx, fields.Status, status, onlyNumbers)
	})
	return plan, outcome, err
}

// Complete adds the controller of that name to a manager, and meters its passes. The builder has its watches.
func (c *Controller[O, P, M]) Complete(name string, options reconcile.Options, b *builder.Builder) error {
	meters, forgotten := NewMeters(name), c.Forgotten
	c.Pass = func(ctx context.Context, of *reconcile.Session[O, kept[M]]) (reconcile.Outcome, error) {
		plan, outcome, err := c.pass(ctx, of)
		if plan == *new(P) {
			return reconcile.Outcome{}, err
		}
		meters.Observe(of.Name, plan.Shared(), outcome)
		return outcome.Loop(plan.Shared()), err
	}
	c.Forgotten = func(name types.NamespacedName, uid types.UID) {
		if forgotten != nil {
			forgotten(name, uid)
		}
		meters.Forget(name)
	}
	return c.Controller.Complete(name, options, b, meters.All()...)
}

// pauseAtMost is the longest pause between two plans of a workload.
const pauseAtMost = time.Second
