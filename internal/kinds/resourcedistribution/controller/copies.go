package controller

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	versions "github.com/afloat-project/afloat/internal/platform/watches"
)

// copies holds the objects of one kind and name in all namespaces, as known from a watch and from own writes.
// The newest version counts, whatever its source: a watch delivers all versions of its objects in order, so a
// response that is not newer than the last event is already known. So nothing has to wait for the watch, and
// nothing expires.
type copies struct {
	of resourcedistribution.Of
	// changed is called, without the lock, when the object in a namespace has changed. An empty name means
	// that it may have changed in all of them.
	changed func(of *copies, namespace string)
	// users are the distributions that use the copies, and stop ends the watch. Both are guarded by the lock
	// of watches.
	users map[types.UID]*distribution
	stop  func()

	mu    sync.Mutex
	known map[string]known
	// seen is the version up to which the watch has delivered events. err is why there is no watch.
	seen   string
	synced bool
	err    error
}

// known is what is known of the object in a namespace.
type known struct {
	copied *resourcedistribution.Copy
	// version is the version of the copy, or the one that was deleted last.
	version string
	// doubt reports that a write was sent whose outcome is not known.
	doubt bool
}

var _ cache.ReflectorStore = (*copies)(nil)

func newCopies(of resourcedistribution.Of, changed func(*copies, string)) *copies {
	return &copies{of: of, changed: changed, users: map[types.UID]*distribution{}, stop: func() {},
		known: map[string]known{}}
}

// newer reports whether a version is newer than another one. A different one with which it cannot be compared, such as
// an empty one, is.
func newer(version, than string) bool {
	return version != than && !versions.Older(version, than)
}

// seen is an object of a watch, reduced to what is kept of it.
type seen struct {
	metav1.TypeMeta
	metav1.ObjectMeta // name, namespace and version, and the annotations of bookmarks
	copied            *resourcedistribution.Copy
}

// GetObjectKind implements runtime.Object.
func (s *seen) GetObjectKind() schema.ObjectKind { return &s.TypeMeta }

// DeepCopyObject implements runtime.Object.
func (s *seen) DeepCopyObject() runtime.Object {
	deep := *s
	return &deep
}

// seenOf returns what is kept of an object of a watch, without its content.
func seenOf(object client.Object) *seen {
	return &seen{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(),
		ResourceVersion: object.GetResourceVersion()}, copied: resourcedistribution.CopyOf(object)}
}

// Add implements cache.ReflectorStore.
func (c *copies) Add(object any) error { return c.Update(object) }

// Update implements cache.ReflectorStore.
func (c *copies) Update(object any) error {
	if s, ok := object.(*seen); ok && c.see(s) {
		c.changed(c, s.Namespace)
	}
	return nil
}

func (c *copies) see(s *seen) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if newer(s.ResourceVersion, c.seen) {
		c.seen = s.ResourceVersion
	}
	return c.put(s.Namespace, s.copied)
}

// put records a version, and reports whether it is new.
func (c *copies) put(namespace string, copied *resourcedistribution.Copy) bool {
	k := c.known[namespace]
	if !newer(copied.Version, k.version) {
		return false
	}
	k.copied, k.version = copied, copied.Version
	c.known[namespace] = k
	return true
}

// Delete implements cache.ReflectorStore.
func (c *copies) Delete(object any) error {
	if s, ok := object.(*seen); ok && c.unsee(s) {
		c.changed(c, s.Namespace)
	}
	return nil
}

func (c *copies) unsee(s *seen) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if newer(s.ResourceVersion, c.seen) {
		c.seen = s.ResourceVersion
	}
	k, ok := c.known[s.Namespace]
	if !ok || newer(k.version, s.ResourceVersion) {
		return false
	}
	c.drop(s.Namespace, k)
	return true
}

func (c *copies) drop(namespace string, k known) {
	if delete(c.known, namespace); k.doubt {
		c.known[namespace] = known{doubt: true}
	}
}

// Replace implements cache.ReflectorStore. The list is complete as of its version.
func (c *copies) Replace(list []any, version string) error {
	for _, namespace := range c.replace(list, version) {
		c.changed(c, namespace)
	}
	return nil
}

func (c *copies) replace(list []any, version string) (changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A list is never older than earlier events, unless the storage was restored from a backup. In that case,
	// versions cannot be compared with those known before.
	back := c.seen != "" && newer(c.seen, version)
	if c.seen = version; back {
		for namespace, k := range c.known {
			k.version = ""
			c.known[namespace] = k
		}
	}

	present := make(map[string]bool, len(list))
	for _, object := range list {
		s, ok := object.(*seen)
		if !ok {
			continue
		}
		if present[s.Namespace] = true; c.put(s.Namespace, s.copied) {
			changed = append(changed, s.Namespace)
		}
	}

	for namespace, k := range c.known {
		if !present[namespace] && (back || !newer(k.version, version)) {
			c.drop(namespace, k)
			changed = append(changed, namespace)
		}
	}

	c.err = nil
	if !c.synced {
		c.synced = true
		return []string{""}
	}

	slices.Sort(changed)
	return changed
}

// Resync implements cache.ReflectorStore.
func (c *copies) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore.
func (c *copies) Bookmark(version string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if newer(version, c.seen) {
		c.seen = version
	}
	return nil
}

// failed records why there is no watch.
func (c *copies) failed(err error) {
	c.mu.Lock()
	news := !c.synced && (c.err == nil || c.err.Error() != err.Error())
	c.err = err
	c.mu.Unlock()
	if news {
		c.changed(c, "")
	}
}

// ready reports whether the objects are known, or returns why they are not.
func (c *copies) ready() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.synced, c.err
}

// in returns the object in a namespace, and whether there is doubt about it.
func (c *copies) in(namespace string) (*resourcedistribution.Copy, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[namespace]
	return k.copied, k.doubt
}

// namespaces returns the namespaces in which there is an object.
func (c *copies) namespaces() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.known))
}

// answered records the result of a write or of a live read, and ends doubt.
func (c *copies) answered(namespace string, copied *resourcedistribution.Copy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(namespace)
	if newer(copied.Version, c.seen) {
		c.put(namespace, copied)
	}
}

// absent records that a live read found no object, and ends doubt. before is what was known when the read
// began. An object that the watch has delivered since is not older than the read, and the watch will deliver
// its deletion, too.
func (c *copies) absent(namespace string, before *resourcedistribution.Copy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch k := c.settle(namespace); {
	case k.version == "":
		delete(c.known, namespace)
	case k.copied == before:
		k.copied = nil // until the watch delivers its deletion, or another object
		c.known[namespace] = k
	}
}

// settle ends doubt.
func (c *copies) settle(namespace string) known {
	k := c.known[namespace]
	if k.doubt {
		k.doubt = false
		c.known[namespace] = k
	}
	return k
}

// deleted records that a version was deleted. It is gone, or terminating if it has finalizers.
func (c *copies) deleted(namespace string, version *resourcedistribution.Copy) {
	if len(version.Finalizers) == 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if k := c.known[namespace]; k.version == version.Version {
			k.copied = nil
			c.known[namespace] = k
		}
		return
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.known[namespace]; k.copied == version {
		going := *version
		going.Deleting = true
		k.copied = &going
		c.known[namespace] = k
	}
}

// doubt records that a write may have happened.
func (c *copies) doubt(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[namespace]
	k.doubt = true
	c.known[namespace] = k
}
