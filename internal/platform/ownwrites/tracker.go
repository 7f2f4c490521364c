// Package ownwrites lets a controller read its own writes: after each write it remembers what the caches must show before the
// next plan may be made from them (docs/decisions/0004, CS-073, CS-074). Nothing blocks for long: where a cache may never show a write,
// because the object was gone again before the watch delivered it, one live read settles the doubt.
package ownwrites

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// DoubtAfter is how long a write may be missing in the cache before it is looked up in the API server.
const DoubtAfter = 2 * time.Second

// Kind names a kind of object; the readers that a caller passes to Pending understand it.
type Kind string

// Object identifies an object of the owner.
type Object struct {
	Kind Kind
	types.NamespacedName
}

// Read returns the metadata of an object, or nil if it does not exist.
type Read func(ctx context.Context, object Object) (metav1.Object, error)

type operation int

const (
	changed operation = iota // the cache must show at least this version, or the object's end
	created                  // the cache must show the object; doubt is settled by a live read
	deleted                  // the cache must show that it is being deleted, or gone
	gone                     // the cache must not show it any more
	unsure                   // a write that may have happened: a live read tells which of the above it was
)

type write struct {
	operation operation
	uid       types.UID
	version   string
	at        time.Time
}

// Tracker remembers the writes of all owners. Its methods may be called concurrently.
type Tracker struct {
	mu     sync.Mutex
	owners map[types.UID]map[Object]write
	// Leaked is called for every doubt that only a live read could settle; it may be nil.
	Leaked func(owner types.UID, object Object)
}

// NewTracker returns a tracker that remembers nothing yet.
func NewTracker() *Tracker { return &Tracker{owners: map[types.UID]map[Object]write{}} }

func (t *Tracker) remember(owner types.UID, object Object, w write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	writes := t.owners[owner]
	if writes == nil {
		writes = map[Object]write{}
		t.owners[owner] = writes
	}
	if before := writes[object]; w.operation == changed && before.operation == created && before.uid == w.uid {
		w.operation = created // the cache may not show the object at all yet: that it shows none is no end
	}
	writes[object] = w
}

// Changed remembers that the object now has that version.
func (t *Tracker) Changed(owner types.UID, kind Kind, object metav1.Object, at time.Time) {
	t.remember(owner, objectOf(kind, object), write{operation: changed, uid: object.GetUID(), version: object.GetResourceVersion(), at: at})
}

// Created remembers that the object was created.
func (t *Tracker) Created(owner types.UID, kind Kind, object metav1.Object, at time.Time) {
	t.remember(owner, objectOf(kind, object), write{operation: created, uid: object.GetUID(), version: object.GetResourceVersion(), at: at})
}

// Deleted remembers that the object was asked to go.
func (t *Tracker) Deleted(owner types.UID, kind Kind, object metav1.Object, at time.Time) {
	t.remember(owner, objectOf(kind, object), write{operation: deleted, uid: object.GetUID(), at: at})
}

// Unsure remembers a write of any sort whose outcome is unknown, such as a request that timed out.
func (t *Tracker) Unsure(owner types.UID, object Object, at time.Time) {
	t.remember(owner, object, write{operation: unsure, at: at})
}

// Forget drops all that is remembered of an owner that is gone.
func (t *Tracker) Forget(owner types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owners, owner)
}

// Pending returns what the cache does not show yet, empty if a plan may be made. A live read that fails is an error.
func (t *Tracker) Pending(ctx context.Context, owner types.UID, cached, live Read, now time.Time) (string, error) {
	t.mu.Lock()
	writes := t.owners[owner]
	open := make(map[Object]write, len(writes))
	for object, w := range writes {
		open[object] = w
	}
	t.mu.Unlock()
	for object, w := range open {
		if w.operation == unsure {
			var err error
			if w, err = t.ascertain(ctx, owner, object, live, now); err != nil {
				return "", err
			}
		}
		settled, err := t.settled(ctx, owner, object, w, cached, live, now)
		if err != nil {
			return "", err
		}
		if settled {
			t.drop(owner, object, w)
			continue
		}
		return fmt.Sprintf("the cache does not show the last write of %s %s yet", object.Kind, object.Name), nil
	}
	return "", nil
}

func (t *Tracker) drop(owner types.UID, object Object, w write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owners[owner][object] == w {
		delete(t.owners[owner], object)
	}
	if len(t.owners[owner]) == 0 {
		delete(t.owners, owner)
	}
}

// ascertain finds out by a live read what the cache has to show after a write whose outcome is unknown.
func (t *Tracker) ascertain(ctx context.Context, owner types.UID, object Object, live Read, now time.Time) (write, error) {
	actual, err := live(ctx, object)
	if err != nil {
		return write{}, fmt.Errorf("reading %s %s from the API server: %w", object.Kind, object.Name, err)
	}
	w := write{operation: gone, at: now}
	if actual != nil {
		w = write{operation: created, uid: actual.GetUID(), version: actual.GetResourceVersion(), at: now}
	}
	t.remember(owner, object, w)
	return w, nil
}

func (t *Tracker) settled(ctx context.Context, owner types.UID, object Object, w write, cached, live Read, now time.Time) (bool, error) {
	seen, err := cached(ctx, object)
	if err != nil {
		return false, fmt.Errorf("reading %s %s: %w", object.Kind, object.Name, err)
	}
	switch w.operation {
	case gone:
		if seen == nil || now.Sub(w.at) < DoubtAfter {
			return seen == nil, nil
		}
		actual, err := live(ctx, object) // another of its name may have come, and the cache have gone from the one to the other
		if err != nil {
			return false, fmt.Errorf("reading %s %s from the API server: %w", object.Kind, object.Name, err)
		}
		return actual != nil && actual.GetUID() == seen.GetUID(), nil
	case changed:
		return seen == nil || seen.GetUID() != w.uid || atLeast(seen.GetResourceVersion(), w.version), nil
	case deleted:
		return seen == nil || seen.GetUID() != w.uid || seen.GetDeletionTimestamp() != nil, nil
	case created:
		if seen != nil {
			return atLeast(seen.GetResourceVersion(), w.version), nil // one of the same name from before does not do
		}
		if now.Sub(w.at) < DoubtAfter {
			return false, nil
		}
	}
	actual, err := live(ctx, object)
	if err != nil {
		return false, fmt.Errorf("reading %s %s from the API server: %w", object.Kind, object.Name, err)
	}
	if actual == nil || (w.operation == created && actual.GetUID() != w.uid) {
		if w.operation == created && t.Leaked != nil {
			t.Leaked(owner, object)
		}
		return true, nil
	}
	return false, nil // it exists: the cache will show it
}

func objectOf(kind Kind, object metav1.Object) Object {
	return Object{Kind: kind, NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}}
}

func atLeast(seen, wanted string) bool {
	if seen == wanted {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(seen, wanted)
	return err != nil || order >= 0
}
