package memcluster

import (
	"cmp"
	"fmt"
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

	"github.com/afloat-project/afloat/internal/memcluster/rules"
)

// Key identifies an object by kind and name. There is one namespace, unless [Cluster.Namespaces] is set.
type Key struct{ Kind, Name string }

// Write is one successful write by the client.
type Write struct {
	Verb, Subresource string
	Key               Key
}

// Request is a request from the client to the API server.
type Request struct {
	// Verb is get, list, create, patch or delete.
	Verb, Subresource string
	Key               Key
	// Body is the body of a patch, and Object the object to create. Interceptors may change them.
	Body   []byte
	Object client.Object
	// UID and ResourceVersion guard a patch or deletion: they are those that the object must have. They are
	// empty if the request leaves them out.
	UID             types.UID
	ResourceVersion string
}

// Interceptor stands between the client and the API server.
type Interceptor interface {
	// Request is called before each request, one at a time, and may fail or change it.
	Request(*Request) error
	// Write carries out a write by calling take, and may fail before or after that. before and after are the
	// object before and after the write, each nil if there is none.
	Write(w Write, before, after client.Object, take func()) error
}

// Cluster is an API server in memory, and what a manager needs to work with it.
type Cluster struct {
	// Interceptor stands between the client and the API server. It may be nil.
	Interceptor Interceptor
	// Writes records the writes of the client.
	Writes []Write
	// AfterWrite is called after a write of the client took effect.
	AfterWrite func(w Write)
	// Happened is called when an object was created, changed or removed, by anybody.
	Happened func(key Key, gone bool)
	// Slim reduces an object to what the caches keep, like the transforms of a manager's caches. nil keeps
	// everything.
	Slim func(any) (any, error)
	// Delivered is called for each event that is delivered to the caches, with the cached object before and
	// after, each nil if there is none. It is meant for managers whose events enqueue objects by their own
	// rules.
	Delivered func(before, after client.Object)
	// Namespaces means that there are several namespaces, so that the name in the key of a namespaced object
	// is "namespace/name".
	Namespaces bool
	// UIDs is the prefix of the UIDs of new objects. If it is empty, the prefix is "uid".
	UIDs string
	// View is the content of the caches that the client reads from, and Views holds those of all managers.
	View  *View
	Views []*View

	now      time.Time
	version  int64
	truth    map[Key]client.Object
	requests sync.Mutex
	indexes  map[[2]string]client.IndexerFunc
}

// New returns an empty cluster.
func New() *Cluster {
	view := &View{Cache: map[Key]client.Object{}}
	return &Cluster{
		View:  view,
		Views: []*View{view},
		now:   time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		truth: map[Key]client.Object{},
	}
}

// key returns the key of an object.
func (c *Cluster) key(kind, namespace, name string) Key {
	if c.Namespaces && namespace != "" {
		name = namespace + "/" + name
	}
	return Key{kind, name}
}

// KeyOf returns the key of an object of that kind.
func (c *Cluster) KeyOf(kind string, object client.Object) Key {
	return c.key(kind, object.GetNamespace(), object.GetName())
}

// Now returns the simulated time.
func (c *Cluster) Now() time.Time { return c.now }

// Begin sets the time.
func (c *Cluster) Begin(at time.Time) { c.now = at }

// Pass advances the clock.
func (c *Cluster) Pass(d time.Duration) { c.now = c.now.Add(d) }

// Version returns the version of the cluster, which grows whenever an object changes.
func (c *Cluster) Version() int64 { return c.version }

// Get returns the object in the API server, or nil if there is none. It must not be modified.
func (c *Cluster) Get(key Key) client.Object { return c.truth[key] }

// List returns the objects of a kind, sorted by name, from the API server or from the caches.
func (c *Cluster) List(kind string, cached bool) []client.Object {
	source := c.truth
	if cached {
		source = c.View.Cache
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

// Store writes an object, as a write of anybody but the client.
func (c *Cluster) Store(key Key, object client.Object) client.Object {
	c.version++
	object.SetResourceVersion(strconv.FormatInt(c.version, 10))
	if object.GetUID() == "" {
		object.SetUID(types.UID(fmt.Sprintf("%s-%d", cmp.Or(c.UIDs, "uid"), c.version)))
		// The API stores whole seconds.
		object.SetCreationTimestamp(metav1.NewTime(c.now.Truncate(time.Second)))
		object.SetGeneration(1)
	}
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 && key.Kind != "Pod" {
		c.Remove(key)
		return object
	}

	c.truth[key] = object
	c.happens(Event{key, object, c.now})
	return object
}

// Change stores a changed copy of an object, if it exists.
func (c *Cluster) Change(key Key, change func(client.Object)) {
	if object := c.truth[key]; object != nil {
		changed := object.DeepCopyObject().(client.Object)
		change(changed)
		c.Store(key, changed)
	}
}

// Remove removes an object.
func (c *Cluster) Remove(key Key) {
	if _, ok := c.truth[key]; ok {
		c.version++
		delete(c.truth, key)
		c.happens(Event{key, nil, c.now})
	}
}

// CollectGarbage removes objects whose owners are all gone. If only some are gone, it removes the references
// to them.
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

var group = schema.GroupResource{}

func notFound(key Key) error { return apierrors.NewNotFound(group, key.Kind+"/"+key.Name) }

func guard(key Key, object client.Object, uid types.UID, version string) error {
	return rules.Guard(group, key.Kind+"/"+key.Name, object, uid, version)
}

// write carries out a write of the client.
func (c *Cluster) write(w Write, before, after client.Object, effect func()) error {
	take := func() {
		effect()
		c.Writes = append(c.Writes, w)
		if c.AfterWrite != nil {
			c.AfterWrite(w)
		}
	}
	if c.Interceptor != nil {
		return c.Interceptor.Write(w, before, after, take)
	}
	take()
	return nil
}

// Create creates an object as the client.
func (c *Cluster) Create(key Key, object client.Object) (client.Object, error) {
	if c.truth[key] != nil {
		return nil, apierrors.NewAlreadyExists(group, key.Name)
	}
	if pod, ok := object.(*corev1.Pod); ok {
		defaults(pod)
	}
	return object, c.write(Write{Verb: "create", Key: key}, nil, object, func() { c.Store(key, object) })
}

// Delete deletes an object as the client, which must have the UID and the resourceVersion of the given
// version, as far as they are set. Pods are removed by their kubelet.
func (c *Cluster) Delete(key Key, version client.Object) error {
	object := c.truth[key]
	if object == nil {
		return notFound(key)
	}
	if err := guard(key, object, version.GetUID(), version.GetResourceVersion()); err != nil {
		return err
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
