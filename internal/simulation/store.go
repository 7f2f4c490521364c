package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Key names an object by kind and name; there is one namespace, unless [Cluster.Namespaces] says otherwise.
type Key struct{ Kind, Name string }

// Faults are the chances, from 0 to 1, that a request of the manager goes wrong.
type Faults struct {
	// Refuse fails a request without effect; Lose lets it take effect and then answers with a timeout.
	Refuse, Lose float64
	// Die ends the manager before or after a write.
	Die float64
}

// Write is one successful write of the manager.
type Write struct {
	Verb, Subresource string
	Key               Key
}

// Cluster is the API server with the manager's cache.
type Cluster struct {
	Rand   *rand.Rand
	Faults Faults
	// Writes counts what the manager wrote.
	Writes []Write
	// BeforeWrite is called before each write of the manager takes effect; tests check invariants in it.
	BeforeWrite func(w Write, before, after client.Object)
	// Refused tells which writes the server always refuses; nil refuses none.
	Refused func(w Write) bool
	// Apart: the caches of different kinds lag apart, as those of a manager do, each of which has a watch of
	// its own. Else events come in the order in which they happened.
	Apart bool
	// Answer is called before each request of the manager, and may fail or change it; nil does not.
	Answer func(*Request) error
	// Slim makes of an object what the caches keep of it, as the transforms of a manager's caches do; nil
	// keeps all.
	Slim func(any) (any, error)
	// Delivered is called for each event that comes to the manager's caches, with the object as they had it
	// and as they have it now, each nil if there is none; it is for those whose events call the manager by
	// rules of their own.
	Delivered func(before, after client.Object)
	// Namespaces: there are many, so that the name in the key of an object that is in one is
	// "namespace/name".
	Namespaces bool
	// UIDs is what the UIDs of new objects begin with; empty is "uid".
	UIDs string
	// AfterWrite is called when a write of the manager has taken effect; tests let others interfere in it.
	AfterWrite func(w Write)
	Happened   func(key Key, gone bool) // called when an object has come, changed or gone, whoever did it

	now      time.Time
	version  int64
	truth    map[Key]client.Object
	view     *View // of the manager that acts
	views    []*View
	dead     bool
	requests sync.Mutex
	indexes  map[[2]string]client.IndexerFunc
}

// View is what the caches of one manager hold, and what has not come to them yet.
type View struct {
	cache map[Key]client.Object
	feed  []event
}

type event struct {
	key    Key
	object client.Object // nil: deleted
	at     time.Time
}

// ErrDead is the answer to every request of a manager that has died.
var ErrDead = errors.New("the manager is dead")

// New returns an empty cluster.
func New(seed uint64) *Cluster {
	view := &View{cache: map[Key]client.Object{}}
	return &Cluster{
		Rand:  rand.New(rand.NewPCG(seed, 1)),
		now:   time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		truth: map[Key]client.Object{},
		view:  view,
		views: []*View{view},
	}
}

// key is the key of an object.
func (c *Cluster) key(kind, namespace, name string) Key {
	if c.Namespaces && namespace != "" {
		name = namespace + "/" + name
	}
	return Key{kind, name}
}

// KeyOf is the key of an object of that kind.
func (c *Cluster) KeyOf(kind string, object client.Object) Key {
	return c.key(kind, object.GetNamespace(), object.GetName())
}

// Now returns the simulated time.
func (c *Cluster) Now() time.Time { return c.now }

// Begin sets the time at which the simulation begins.
func (c *Cluster) Begin(at time.Time) { c.now = at }

// Pass lets time pass.
func (c *Cluster) Pass(d time.Duration) { c.now = c.now.Add(d) }

// Chance is true with that probability.
func (c *Cluster) Chance(p float64) bool { return p > 0 && c.Rand.Float64() < p }

// Get returns the object as it is in the API server, nil if there is none. It must not be changed.
func (c *Cluster) Get(key Key) client.Object { return c.truth[key] }

// Cached returns the object as the manager's cache has it.
func (c *Cluster) Cached(key Key) client.Object { return c.view.cache[key] }

// List returns the objects of a kind by name, from the API server or from the cache.
func (c *Cluster) List(kind string, cached bool) []client.Object {
	source := c.truth
	if cached {
		source = c.view.cache
	}

	var keys []string
	for key := range source {
		if key.Kind == kind {
			keys = append(keys, key.Name)
		}
	}

	slices.Sort(keys)
	objects := make([]client.Object, len(keys))
	for i, name := range keys {
		objects[i] = source[Key{kind, name}]
	}

	return objects
}

// Store writes an object as anybody but the manager does, without faults.
func (c *Cluster) Store(key Key, object client.Object) client.Object {
	c.version++
	object.SetResourceVersion(strconv.FormatInt(c.version, 10))
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("%s-%d", cmp.Or(c.UIDs, "uid"), c.version)))
		object.SetCreationTimestamp(metav1.NewTime(c.now.Truncate(time.Second))) // as documents tell it
		object.SetGeneration(1)
	}
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 && key.Kind != "Pod" {
		c.Remove(key)
		return object
	}

	c.truth[key] = object
	c.happens(event{key, object, c.now})
	return object
}

func (c *Cluster) happens(e event) {
	if c.Happened != nil {
		c.Happened(e.key, e.object == nil)
	}
	for _, view := range c.views {
		view.feed = append(view.feed, e)
	}
}

// Fork returns the view of a second manager, which has seen what the present one has, and goes its own way
// from now on.
func (c *Cluster) Fork() *View {
	view := &View{cache: maps.Clone(c.view.cache), feed: slices.Clone(c.view.feed)}
	c.views = append(c.views, view)
	return view
}

// As lets the manager act that has the view.
func (c *Cluster) As(view *View, act func()) {
	present := c.view
	c.view = view
	defer func() { c.view = present }()
	act()
}

// End ends a view that was forked.
func (c *Cluster) End(view *View) {
	c.views = slices.DeleteFunc(c.views, func(v *View) bool { return v == view })
}

// Change stores a changed copy of an object, if it exists.
func (c *Cluster) Change(key Key, change func(client.Object)) {
	if object := c.truth[key]; object != nil {
		changed := object.DeepCopyObject().(client.Object)
		change(changed)
		c.Store(key, changed)
	}
}

// Remove ends an object.
func (c *Cluster) Remove(key Key) {
	if _, ok := c.truth[key]; ok {
		c.version++
		delete(c.truth, key)
		c.happens(event{key, nil, c.now})
	}
}

// CollectGarbage removes objects that have owners of which none exists, and references to owners that do not
// where others do.
func (c *Cluster) CollectGarbage() {
	alive := map[types.UID]bool{}
	for _, object := range c.truth {
		alive[object.GetUID()] = true
	}

	for _, kind := range []string{"Pod", "PersistentVolumeClaim", "ControllerRevision", "ImagePullJob"} {
		for _, object := range c.List(kind, false) {
			owners, key := object.GetOwnerReferences(), c.KeyOf(kind, object)
			solid := slices.DeleteFunc(slices.Clone(owners), func(owner metav1.OwnerReference) bool {
				return !alive[owner.UID]
			})
			switch {
			case len(solid) == len(owners) || object.GetDeletionTimestamp() != nil:
			case len(solid) == 0:
				c.EndGracefully(key)
			default:
				c.Change(key, func(o client.Object) { o.SetOwnerReferences(solid) })
			}
		}
	}
}

// Deliver brings up to n events to the manager's cache and tells whether there were any.
func (c *Cluster) Deliver(n int) bool {
	n = min(n, len(c.view.feed))
	for range n {
		c.deliver(c.next())
	}
	return n > 0
}

// CatchUp brings all events to the manager's cache that happened longer ago than that.
func (c *Cluster) CatchUp(lag time.Duration) {
	for len(c.view.feed) > 0 && c.now.Sub(c.view.feed[0].at) > lag {
		c.deliver(0)
	}
}

// deliver brings one event to the manager's cache.
func (c *Cluster) deliver(i int) {
	e := c.view.feed[i]
	c.view.feed = slices.Delete(c.view.feed, i, i+1)
	before, after := c.view.cache[e.key], client.Object(nil)
	if e.object == nil {
		delete(c.view.cache, e.key)
	} else {
		after = c.slimmed(e.object)
		c.view.cache[e.key] = after
	}
	if c.Delivered != nil {
		c.Delivered(before, after)
	}
}

func (c *Cluster) slimmed(object client.Object) client.Object {
	if c.Slim == nil {
		return object
	}
	kept, err := c.Slim(object.DeepCopyObject())
	if err != nil {
		panic(err)
	}
	return kept.(client.Object)
}

// next is the event that comes next: the oldest, or the oldest of some kind.
func (c *Cluster) next() int {
	if !c.Apart {
		return 0
	}
	kinds := map[string]bool{}
	var oldest []int
	for i := range c.view.feed {
		if kind := c.view.feed[i].key.Kind; !kinds[kind] {
			kinds[kind] = true
			oldest = append(oldest, i)
		}
	}
	return oldest[c.Rand.IntN(len(oldest))]
}

// Undelivered is the number of events that the cache lacks.
func (c *Cluster) Undelivered() int { return len(c.view.feed) }

// Kill ends the manager.
func (c *Cluster) Kill() { c.dead = true }

// Hide takes an object out of the manager's cache, as if it had not been delivered yet.
func (c *Cluster) Hide(key Key) { delete(c.view.cache, key) }

// Show lets the manager's cache have an object as it was before, or as it is now.
func (c *Cluster) Show(key Key, object client.Object) { c.view.cache[key] = object }

// Dead tells whether the manager has died.
func (c *Cluster) Dead() bool { return c.dead }

// Revive lets the present manager go on: it was another one that died.
func (c *Cluster) Revive() { c.dead = false }

// Restart starts a new manager, whose cache begins with a complete list.
func (c *Cluster) Restart() {
	c.dead = false
	c.Deliver(len(c.view.feed))
}

var group = schema.GroupResource{}

func notFound(key Key) error { return apierrors.NewNotFound(group, key.Kind+"/"+key.Name) }
func conflict(key Key, why string) error {
	return apierrors.NewConflict(group, key.Kind+"/"+key.Name, errors.New(why))
}

// write performs a write of the manager under the faults of the day.
func (c *Cluster) write(w Write, before, after client.Object, effect func()) error {
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
	effect()
	c.Writes = append(c.Writes, w)
	if c.AfterWrite != nil {
		c.AfterWrite(w)
	}

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

// Live is a read of the manager from the API server.
func (c *Cluster) Live(key Key) (client.Object, error) {
	if c.dead {
		return nil, ErrDead
	}
	if object := c.truth[key]; object != nil {
		return object, nil
	}
	return nil, notFound(key)
}

// Create is a creation by the manager.
func (c *Cluster) Create(key Key, object client.Object) (client.Object, error) {
	if c.dead {
		return nil, ErrDead
	}
	if c.truth[key] != nil {
		return nil, apierrors.NewAlreadyExists(group, key.Name)
	}
	if pod, ok := object.(*corev1.Pod); ok {
		defaults(pod)
	}
	return object, c.write(Write{Verb: "create", Key: key}, nil, object, func() { c.Store(key, object) })
}

// Delete is a deletion by the manager of exactly that version. Pods end when their kubelet says so.
func (c *Cluster) Delete(key Key, version client.Object) error {
	if c.dead {
		return ErrDead
	}

	object := c.truth[key]
	if object == nil {
		return notFound(key)
	}
	if object.GetUID() != version.GetUID() || version.GetResourceVersion() != "" &&
		object.GetResourceVersion() != version.GetResourceVersion() {
		return conflict(key, "another version")
	}
	if object.GetDeletionTimestamp() != nil {
		return nil
	}

	return c.write(Write{Verb: "delete", Key: key}, object, nil, func() { c.EndGracefully(key) })
}

// EndGracefully begins the deletion of an object.
func (c *Cluster) EndGracefully(key Key) {
	if key.Kind != "Pod" && len(c.truth[key].GetFinalizers()) == 0 {
		c.Remove(key)
		return
	}
	c.Change(key, func(o client.Object) {
		now := metav1.NewTime(c.now)
		o.SetDeletionTimestamp(&now)
	})
}
