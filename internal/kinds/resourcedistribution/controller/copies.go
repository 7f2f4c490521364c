package controller

import (
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
)

// copies are the objects of one kind and name in all namespaces, as a watch and own writes show them. Of each
// version the newest counts, whoever brought it: a watch tells of all versions of its objects in their order,
// so that an answer which is not newer than what the watch told last is known already. Nothing has to wait
// for the watch, and nothing is forgotten by time.
type copies struct {
	of resourcedistribution.Of
	// changed is called, without the lock, when a namespace is otherwise than it was known; with an empty
	// name when all may be.
	changed func(of *copies, namespace string)
	// users are the distributions, and stop ends the watch; both belong to watches.
	users map[types.UID]*distribution
	stop  func()

	mu    sync.Mutex
	known map[string]known
	// seen is the version up to which the watch has told; err is why there is none.
	seen   string
	synced bool
	err    error
}

// known is what is known in a namespace.
type known struct {
	copied *resourcedistribution.Copy
	// version is that of the copy, or that which was deleted last.
	version string
	// doubt: a write was sent, and what became of it is not known.
	doubt bool
}

var _ cache.ReflectorStore = (*copies)(nil)

func newCopies(of resourcedistribution.Of, changed func(*copies, string)) *copies {
	return &copies{of: of, changed: changed, users: map[types.UID]*distribution{}, stop: func() {},
		known: map[string]known{}}
}

// newer tells whether a version is newer than another, empty ones being the oldest; those that cannot be
// compared are.
func newer(version, than string) bool {
	if than == "" || version == "" {
		return version != than
	}
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}

// seen is an object of a watch.
type seen struct {
	metav1.TypeMeta
	metav1.ObjectMeta // name, namespace and version; annotations of bookmarks
	copied            *resourcedistribution.Copy
}

// GetObjectKind implements runtime.Object.
func (s *seen) GetObjectKind() schema.ObjectKind { return &s.TypeMeta }

// DeepCopyObject implements runtime.Object.
func (s *seen) DeepCopyObject() runtime.Object {
	deep := *s
	return &deep
}

// seenOf is what is kept of an object of a watch. Its content is not.
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

// put notes a version, and tells whether it is news.
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

// Replace implements cache.ReflectorStore: the list is all there is of that version.
func (c *copies) Replace(list []any, version string) error {
	for _, namespace := range c.replace(list, version) {
		c.changed(c, namespace)
	}
	return nil
}

func (c *copies) replace(list []any, version string) (changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A list is never older than what the watch told before it, unless storage was restored from a backup:
	// then all that is known is of no history.
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

// failed notes why there is no watch.
func (c *copies) failed(err error) {
	c.mu.Lock()
	news := !c.synced && (c.err == nil || c.err.Error() != err.Error())
	c.err = err
	c.mu.Unlock()
	if news {
		c.changed(c, "")
	}
}

// ready tells whether the objects are known, or why not.
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

// namespaces are those in which there is an object.
func (c *copies) namespaces() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.known))
}

// answered notes what a write left, or a live read showed. It ends doubt.
func (c *copies) answered(namespace string, copied *resourcedistribution.Copy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(namespace)
	if newer(copied.Version, c.seen) {
		c.put(namespace, copied)
	}
}

// absent notes that a live read showed nothing; before is what was known when it began. What the watch has
// told of since is not older than that, and its end will be told, too. It ends doubt.
func (c *copies) absent(namespace string, before *resourcedistribution.Copy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch k := c.settle(namespace); {
	case k.version == "":
		delete(c.known, namespace)
	case k.copied == before:
		k.copied = nil // until the watch tells of it, or of another
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

// deleted notes that a version was deleted: it is gone, or going if something holds it.
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

// doubt notes that a write may have happened.
func (c *copies) doubt(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[namespace]
	k.doubt = true
	c.known[namespace] = k
}
