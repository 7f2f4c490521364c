package takeover

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// leaderAnnotation is the annotation on a ConfigMap that holds the lock of managers up to 1.4.
const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// quiet is how long a lock must not have been renewed if the pod of its holder was seen to end. Holders renew
// their lock every two seconds.
const quiet = 3 * time.Second

// place is where a lock may be.
type place struct {
	kind schema.GroupVersionKind
	lockName
}

// placesOf returns where the lock of a manager may be: in the namespace of the flag, which defaults to
// kruise-system even if a kustomization has renamed the namespace, and in the manager's own namespace. The
// lock is a Lease, or a ConfigMap for managers up to 1.4.
func placesOf(manager *unstructured.Unstructured, lock lockName, namespace string) []place {
	space, has := argument(manager, "leader-election-namespace")
	if !has {
		space = installation.Namespace
	}

	var places []place
	for _, space := range []string{cmp.Or(space, namespace), lock.namespace, namespace} {
		for _, kind := range []schema.GroupVersionKind{installation.Leases,
			{Version: "v1", Kind: "ConfigMap"}} {
			if p := (place{kind, lockName{space, lock.name}}); !slices.Contains(places, p) {
				places = append(places, p)
			}
		}
	}

	return places
}

// argument returns the value of a flag of a manager.
func argument(manager *unstructured.Unstructured, name string) (value string, has bool) {
	container := mainContainer(manager)
	args := append(texts(container["command"]), texts(container["args"])...)
	for i, arg := range args {
		flag, text, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if flag != name || !strings.HasPrefix(arg, "-") {
			continue
		}
		if !given && i+1 < len(args) {
			text = args[i+1]
		}
		value, has = text, true
	}

	return value, has
}

// held is the state of a lock.
type held struct {
	holder, renewed string
	seconds         int64
}

func readLock(object *unstructured.Unstructured) held {
	if object == nil {
		return held{}
	}

	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	if object.GetKind() != installation.Leases.Kind {
		spec = nil
		_ = json.Unmarshal([]byte(object.GetAnnotations()[leaderAnnotation]), &spec)
	}

	h := held{}
	h.holder, _ = spec["holderIdentity"].(string)
	h.renewed, _ = spec["renewTime"].(string)
	switch n := spec["leaseDurationSeconds"].(type) {
	case int64:
		h.seconds = n
	case float64:
		h.seconds = int64(n)
	}

	return h
}

// watcher observes the renewal of locks, by the clock of this machine only.
type watcher struct {
	places []place
	last   map[place]string
	since  map[place]time.Time
	// alone means that all pods known to want a lock are gone.
	alone bool
	// ended are the pods that were seen to be ended by their kubelets.
	ended map[string]bool
}

func newWatcher(places []place) *watcher {
	return &watcher{places: places, last: map[place]string{}, since: map[place]time.Time{},
		ended: map[string]bool{}}
}

// see reads the locks, and describes those that are held.
func (t *takeover) see(ctx context.Context, w *watcher) (missing []string, err error) {
	for _, p := range w.places {
		object, err := installation.Get(ctx, t.client, p.kind, p.namespace, p.name)
		if err != nil {
			return nil, err
		}

		h := readLock(object)
		if h.holder == "" {
			delete(w.last, p)
			continue
		}
		if now := h.holder + " " + h.renewed; now != w.last[p] {
			w.last[p], w.since[p] = now, time.Now()
		}

		holds, still := time.Duration(h.seconds)*time.Second, time.Since(w.since[p])
		if still >= holds {
			// Otherwise the new manager would watch the lock for the same time again.
			if w.alone && p.kind == installation.Leases && apierrors.IsConflict(t.release(ctx, object)) {
				missing = append(missing, fmt.Sprintf("somebody writes Lease %s/%s", p.namespace, p.name))
			}
			continue
		}

		pod, _, _ := strings.Cut(h.holder, "_")
		if still >= quiet && w.ended[pod] && p.kind == installation.Leases {
			if err := t.release(ctx, object); err == nil {
				t.say("%s held Lease %s/%s, and its pod has ended: it is given back", h.holder, p.namespace,
					p.name)
				continue
			} else if !apierrors.IsConflict(err) {
				return nil, err
			}
		}

		missing = append(missing,
			fmt.Sprintf("%s holds %s %s/%s, for %s after it last renewed it", h.holder, p.kind.Kind,
				p.namespace, p.name, holds))
	}

	return missing, nil
}

// release releases the lock of a holder that has ended without doing so. If somebody has written the lease
// since it was read, it returns a conflict. The patch tests nothing else, because such a test would fail
// first, with an answer that does not tell why.
func (t *takeover) release(ctx context.Context, lease *unstructured.Unstructured) error {
	body, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": lease.GetResourceVersion()},
		{"op": "replace", "path": "/spec/holderIdentity", "value": ""},
		{"op": "replace", "path": "/spec/leaseDurationSeconds", "value": 1}})
	if err != nil {
		return fmt.Errorf("giving back the lock: %w", err)
	}
	if err := t.client.Patch(ctx, lease, client.RawPatch("application/json-patch+json", body),
		client.FieldOwner(t.fieldManager)); err != nil {
		return fmt.Errorf("giving back the lock: %w", err)
	}
	return nil
}

// lockFree waits until all locks are free: released, or not renewed for their duration. The wait is shorter
// if the pod of the holder was seen to end.
func (t *takeover) lockFree(ctx context.Context, w *watcher) error {
	w.alone = true
	if err := t.wait(ctx, "the lock", func(ctx context.Context) (string, error) {
		missing, err := t.see(ctx, w)
		return strings.Join(missing, "; "), err
	}); err != nil {
		return fmt.Errorf("the lock does not get free, so another manager acts, which must end first: %w",
			err)
	}
	t.say("the lock %s/%s is free", w.places[0].namespace, w.places[0].name)
	return nil
}
