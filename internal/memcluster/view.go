package memcluster

import (
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// View holds the content of a manager's caches, and the events that are not delivered to them yet.
type View struct {
	Cache map[Key]client.Object
	Feed  []Event
}

// Event is a change of an object.
type Event struct {
	Key Key
	// Object is the object after the change. It is nil if the object was removed.
	Object client.Object
	At     time.Time
}

func (c *Cluster) happens(e Event) {
	if c.Happened != nil {
		c.Happened(e.Key, e.Object == nil)
	}
	for _, view := range c.Views {
		view.Feed = append(view.Feed, e)
	}
}

// Cached returns the object in the caches, or nil if there is none. It must not be modified.
func (c *Cluster) Cached(key Key) client.Object { return c.View.Cache[key] }

// Undelivered returns the number of events that are not delivered yet.
func (c *Cluster) Undelivered() int { return len(c.View.Feed) }

// Deliver delivers up to n events to the caches, and reports whether there were any.
func (c *Cluster) Deliver(n int) bool {
	n = min(n, len(c.View.Feed))
	for range n {
		c.DeliverOne(0)
	}
	return n > 0
}

// DeliverOne delivers the event with that index in the feed to the caches.
func (c *Cluster) DeliverOne(i int) {
	e := c.View.Feed[i]
	c.View.Feed = slices.Delete(c.View.Feed, i, i+1)
	before, after := c.View.Cache[e.Key], client.Object(nil)
	if e.Object == nil {
		delete(c.View.Cache, e.Key)
	} else {
		after = c.slimmed(e.Object)
		c.View.Cache[e.Key] = after
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
