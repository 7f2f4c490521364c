package simulation

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/memcluster"
)

// What a simulation is about is the cluster in memory.
type (
	// Key identifies an object by kind and name.
	Key = memcluster.Key
	// Write is one successful write by the manager.
	Write = memcluster.Write
	// Request is a request from the manager to the API server.
	Request = memcluster.Request
	// Node simulates the scheduler and the kubelets.
	Node = memcluster.Node
	// View holds the content of one manager's caches, and the events that are not delivered yet.
	View = memcluster.View
)

// Faults holds the probabilities, from 0 to 1, of faults of the manager's requests.
type Faults struct {
	// Refuse is for a request that fails without effect, and Lose for one that takes effect and then times
	// out.
	Refuse, Lose float64
	// Die is for the death of the manager before or after a write.
	Die float64
}

// Cluster is a cluster in memory with faults.
type Cluster struct {
	*memcluster.Cluster
	Rand   *rand.Rand
	Faults Faults
	// BeforeWrite is called before each write of the manager takes effect. Tests check invariants in it.
	BeforeWrite func(w Write, before, after client.Object)
	// Refused reports whether the API server always rejects a write. nil rejects none.
	Refused func(w Write) bool
	// Apart means that the caches of different kinds are stale independently, like those of a manager, where
	// each has its own watch. Otherwise events are delivered in the order in which they happened.
	Apart bool
	// Answer is called before each request of the manager, and may fail or change it. It may be nil.
	Answer func(*Request) error

	dead bool
}

// ErrDead is returned for every request of a manager that has died.
var ErrDead = errors.New("the manager is dead")

// New returns an empty cluster.
func New(seed uint64) *Cluster {
	return Over(memcluster.New(), rand.New(rand.NewPCG(seed, 1)))
}

// Over returns a cluster with faults in front of one without.
func Over(cluster *memcluster.Cluster, random *rand.Rand) *Cluster {
	c := &Cluster{Cluster: cluster, Rand: random}
	cluster.Interceptor = interceptor{c}
	return c
}

// Chance returns true with the given probability.
func (c *Cluster) Chance(p float64) bool { return p > 0 && c.Rand.Float64() < p }

// interceptor makes the manager's requests fail.
type interceptor struct{ cluster *Cluster }

var _ memcluster.Interceptor = interceptor{}

// Request implements memcluster.Interceptor. It panics if a patch or deletion is not guarded.
func (i interceptor) Request(r *Request) error {
	if i.cluster.dead {
		return ErrDead
	}
	if r.Verb == "patch" && (r.UID == "" || r.ResourceVersion == "") || r.Verb == "delete" && r.UID == "" {
		panic("a " + r.Verb + " without guard: " + r.Key.Kind + " " + r.Key.Name + " " + string(r.Body))
	}
	if i.cluster.Answer != nil {
		return i.cluster.Answer(r)
	}
	return nil
}

// Write implements memcluster.Interceptor.
func (i interceptor) Write(w Write, before, after client.Object, take func()) error {
	c := i.cluster
	switch {
	case c.dead:
		return ErrDead
	case c.Chance(c.Faults.Die):
		c.dead = true
		return ErrDead
	case c.Chance(c.Faults.Refuse), c.Refused != nil && c.Refused(w):
		return apierrors.NewInternalError(errors.New("refused by the simulation"))
	}

	if c.BeforeWrite != nil {
		c.BeforeWrite(w, before, after)
	}
	take()

	switch {
	case c.dead:
		return ErrDead
	case c.Chance(c.Faults.Die):
		c.dead = true
		return ErrDead
	case c.Chance(c.Faults.Lose):
		return apierrors.NewTimeoutError("lost by the simulation", 1)
	}

	return nil
}

// Fork returns the view of a second manager, which has seen the same as the current one and is independent
// from now on.
func (c *Cluster) Fork() *View {
	view := &View{Cache: maps.Clone(c.View.Cache), Feed: slices.Clone(c.View.Feed)}
	c.Views = append(c.Views, view)
	return view
}

// As lets the manager with the given view act.
func (c *Cluster) As(view *View, act func()) {
	present := c.View
	c.View = view
	defer func() { c.View = present }()
	act()
}

// End removes a view that was forked.
func (c *Cluster) End(view *View) {
	c.Views = slices.DeleteFunc(c.Views, func(v *View) bool { return v == view })
}

// Deliver delivers up to n events to the manager's caches, and reports whether there were any.
func (c *Cluster) Deliver(n int) bool {
	n = min(n, c.Undelivered())
	for range n {
		c.DeliverOne(c.next())
	}
	return n > 0
}

// CatchUp delivers all events that are older than lag to the manager's caches.
func (c *Cluster) CatchUp(lag time.Duration) {
	for c.Undelivered() > 0 && c.Now().Sub(c.View.Feed[0].At) > lag {
		c.DeliverOne(0)
	}
}

// next returns the index of the event to deliver next: the oldest one, or the oldest one of a random kind.
func (c *Cluster) next() int {
	if !c.Apart {
		return 0
	}
	kinds := map[string]bool{}
	var oldest []int
	for i := range c.View.Feed {
		if kind := c.View.Feed[i].Key.Kind; !kinds[kind] {
			kinds[kind] = true
			oldest = append(oldest, i)
		}
	}
	return oldest[c.Rand.IntN(len(oldest))]
}

// Hide removes an object from the manager's caches, as if it had not been delivered yet.
func (c *Cluster) Hide(key Key) { delete(c.View.Cache, key) }

// Show puts a previous or the current version of an object into the manager's caches.
func (c *Cluster) Show(key Key, object client.Object) { c.View.Cache[key] = object }

// Kill makes the manager die.
func (c *Cluster) Kill() { c.dead = true }

// Dead reports whether the manager has died.
func (c *Cluster) Dead() bool { return c.dead }

// Revive lets the current manager continue, because another one died.
func (c *Cluster) Revive() { c.dead = false }

// Restart starts a new manager, whose caches begin with a complete list.
func (c *Cluster) Restart() {
	c.dead = false
	c.Deliver(c.Undelivered())
}
