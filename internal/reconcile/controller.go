package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
)

// Controller makes passes over the objects of a kind. A kind declares its pass and what it keeps; the
// Controller settles own writes, reads the object, requeues, and forgets objects that are gone. O is a
// pointer to the type of the objects, and M what the kind keeps of an object from one pass to the next.
type Controller[O Object, M any] struct {
	API    *API
	Events Recorder
	// Pass makes one pass over an object. It is repeated soon if it returns an error by which its plan was
	// stale (see [Outcome.Retry]).
	Pass func(ctx context.Context, s *Session[O, M]) (Outcome, error)
	// DeletedUnsettled means that a pass over an object that is being deleted needs nothing that the object wrote
	// before. It is made although it is not known what became of that.
	DeletedUnsettled bool
	// Absent makes a pass over a name without an object; nil if there is nothing to do then.
	Absent func(ctx context.Context, name types.NamespacedName) (Outcome, error)
	// Forgotten is called for each object that is gone or was replaced by another of its name; nil if nothing
	// is kept of it elsewhere.
	Forgotten func(name types.NamespacedName, owner types.UID)
	// Owner is as in [Loop]; nil means [UIDs].
	Owner func(ctx context.Context, name types.NamespacedName) (types.UID, error)
	// Every is the shortest time from the beginning of a pass to that of the next; 0 means no limit. AtMost is
	// the longest pause between two passes by which more events come together. RetryAtMost is the longest pause
	// after a pass that failed; 0 leaves it to the back-off.
	Every, AtMost, RetryAtMost time.Duration

	objects Memory[kept[M]]
}

// kept is what a Controller keeps of one object.
type kept[M any] struct {
	// name is read by others than the pass.
	name   atomic.Pointer[types.NamespacedName]
	news   News
	status StatusThrottle
	kind   M
}

// Begin begins a pass over an object: it settles own writes, and reads the object as [Find] does. It returns
// nil if the object is gone or was replaced by another of its name. Anything read before the writes were
// settled may be older than they are and must not be used.
func (c *Controller[O, M]) Begin(
	ctx context.Context, name types.NamespacedName, owner types.UID,
) (*Session[O, M], error) {
	begun := c.API.Now()
	unsettled := c.API.Own.Settle(ctx, owner, begun)
	if unsettled != nil && !c.DeletedUnsettled {
		return nil, unsettled
	}
	object, err := Find[O](ctx, c.API, name)
	if err == nil && unsettled != nil && (object == *new(O) || object.GetDeletionTimestamp() == nil) {
		err = unsettled
	}
	if err != nil || object == *new(O) || object.GetUID() != owner {
		return nil, err
	}

	kept := c.objects.Of(owner)
	kept.name.Store(&name)
	return &Session[O, M]{
		Writer: c.API.For(owner), Events: c.Events, Name: name, Object: object, Kept: &kept.kind, Begun: begun,
		controller: c, kept: kept,
	}, nil
}

// Run makes one pass over an object. owner is its UID, empty if there is no object of that name.
func (c *Controller[O, M]) Run(
	ctx context.Context, name types.NamespacedName, owner types.UID,
) (Outcome, error) {
	done, err := c.pass(ctx, name, owner)
	if done, err = done.Retry(err); err != nil {
		MinRequeue(&done.After, c.RetryAtMost)
	}
	return done, err
}

func (c *Controller[O, M]) pass(
	ctx context.Context, name types.NamespacedName, owner types.UID,
) (done Outcome, err error) {
	if owner == "" {
		if c.Absent != nil {
			done, err = c.Absent(ctx, name)
		}
		return done, err
	}

	s, err := c.Begin(ctx, name, owner)
	if err != nil || s == nil {
		return done, err
	}
	if done, err = c.Pass(ctx, s); err == nil { // otherwise the back-off decides, or the pass itself
		MinRequeue(&done.After, s.Again())
	}

	return done, err
}

// Loop returns the reconciler. limiter is the back-off of failing objects; nil means that of
// controller-runtime.
func (c *Controller[O, M]) Loop(limiter workqueue.TypedRateLimiter[ctrl.Request]) *Loop {
	owner := c.Owner
	if owner == nil {
		owner = UIDs[O](c.API)
	}
	return NewLoop(Loop{Now: c.API.Now, Every: c.Every, Owner: owner, Pass: c.Run, Forget: c.Forget},
		c.AtMost, limiter)
}

// Complete adds the controller of that name to a manager, with its metrics. The builder has its watches.
func (c *Controller[O, M]) Complete(
	name string, options Options, b *builder.Builder, meters ...prometheus.Collector,
) error {
	if err := Register(meters...); err != nil {
		return err
	}
	return options.Complete(name, c.Loop(options.Limiter()), b)
}

// Forget drops what is kept of an object that is gone.
func (c *Controller[O, M]) Forget(name types.NamespacedName, owner types.UID) {
	c.API.Own.Forget(owner)
	c.objects.Forget(owner)
	if c.Forgotten != nil {
		c.Forgotten(name, owner)
	}
}

// Kept returns what the kind keeps of an object, nil if no pass was made over it. Passes may change it
// meanwhile.
func (c *Controller[O, M]) Kept(owner types.UID) *M {
	if kept := c.objects.Find(owner); kept != nil {
		return &kept.kind
	}
	return nil
}

// NameOf returns the name of the object with that UID, empty if no pass was made over it.
func (c *Controller[O, M]) NameOf(owner types.UID) types.NamespacedName {
	if kept := c.objects.Find(owner); kept != nil {
		if name := kept.name.Load(); name != nil {
			return *name
		}
	}
	return types.NamespacedName{}
}

// Session is one pass over an object, together with what is kept of the object for later passes. Its Writer
// writes for the object.
type Session[O Object, M any] struct {
	*Writer
	Events Recorder
	Name   types.NamespacedName
	// Object is the object from the cache, with own writes laid over it. It must not be changed. A pass that
	// writes the object replaces it by the answer.
	Object O
	// Kept is what the kind keeps of the object.
	Kept *M
	// Begun is when the pass began.
	Begun time.Time

	controller *Controller[O, M]
	kept       *kept[M]
}

// Event records an event about the object.
func (s *Session[O, M]) Event(eventType, reason, message string) {
	s.Events.Event(s.Object, eventType, reason, message)
}

// Once records an event about the object, unless the last one of that reason had the same message. An empty
// message records nothing and forgets the last one.
func (s *Session[O, M]) Once(eventType, reason, message string) {
	if s.News(reason, message) {
		s.Event(eventType, reason, message)
	}
}

// News reports whether an event about the object is news, as [News.Is] does.
func (s *Session[O, M]) News(reason, about string) bool { return s.kept.news.Is(reason, about) }

// WriteStatus writes the status of the object at the end of a pass, as [StatusThrottle.Write] does.
func (s *Session[O, M]) WriteStatus(
	ctx context.Context, old, new any, onlyNumbers bool,
) (time.Duration, error) {
	return s.kept.status.Write(ctx, s.Writer, s.Object, old, new, onlyNumbers)
}

// StatusMayWait returns how long a status may wait that the kind writes by itself, as [StatusThrottle.Wait]
// does.
func (s *Session[O, M]) StatusMayWait(onlyNumbers bool) time.Duration {
	return s.kept.status.Wait(s.Now(), onlyNumbers)
}

// Again returns when to requeue because of own writes that the caches may never show; 0 means not at all. The
// Controller does so after a pass without an error.
func (s *Session[O, M]) Again() time.Duration { return s.Own.Again(s.owner) }

// Forget drops what is kept of the object, but not the own writes: there is nothing left to do for it.
func (s *Session[O, M]) Forget() { s.controller.objects.Forget(s.owner) }
