package fastserver

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/afloat-project/afloat/internal/memcluster/rules"
)

// history is how many events of a resource are kept at least; watches that need older ones must list again.
const history = 1 << 15

// event is one change of a resource.
type event struct {
	kind watch.EventType
	// before is what the event replaced or deleted, now what it left; a deletion has its last version with
	// the number of the deletion.
	before, now *version
}

// resource keeps the objects of one kind.
type resource struct {
	kind   *kind
	server *Server

	mu      sync.Mutex
	objects map[string]*version
	// log has the latest events; first is the position of log[0] among all events, lost the version of the
	// last one that was dropped.
	log   []event
	first int
	lost  uint64
	// more is closed when there are more events.
	more chan struct{}
}

func newResource(k *kind, s *Server) *resource {
	return &resource{kind: k, server: s, objects: map[string]*version{}, more: make(chan struct{})}
}

func keyOf(namespace, name string) string { return namespace + "/" + name }

func (r *resource) get(key string) *version {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[key]
}

func (r *resource) notFound(name string) error {
	return apierrors.NewNotFound(r.kind.GroupResource(), name)
}

// list returns all objects for which chosen is true, in the order of their names, and the version of the
// list. The position is that from which a watch continues.
func (r *resource) list(chosen func(*version) bool) (all []*version, number uint64, position int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.objects {
		if chosen(v) {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *version) int { return bytes.Compare([]byte(a.key), []byte(b.key)) })
	return all, r.server.last.Load(), r.first + len(r.log)
}

// store stores a version and sends it to watches; the lock must be held. Nil means a deletion.
func (r *resource) store(before *version, o object, key string) *version {
	e := event{kind: watch.Modified, before: before}
	deleted := o == nil
	if deleted {
		o = before.DeepCopyObject().(object)
	}
	number := r.server.last.Add(1)
	o.SetResourceVersion(strconv.FormatUint(number, 10))
	e.now = &version{object: o, number: number, key: key}
	switch {
	case deleted:
		e.kind = watch.Deleted
		delete(r.objects, key)
	case before == nil:
		e.kind = watch.Added
		r.objects[key] = e.now
	default:
		r.objects[key] = e.now
	}
	r.log = append(r.log, e)
	if len(r.log) >= 2*history {
		r.lost = r.log[history-1].now.number
		r.log = slices.Clone(r.log[history:])
		r.first += history
	}
	close(r.more)
	r.more = make(chan struct{})
	return e.now
}

// since returns the events from a position on, and a channel that is closed when there are more. It returns
// false if the events are not kept any more.
func (r *resource) since(position int) ([]event, <-chan struct{}, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if position < r.first {
		return nil, nil, false
	}
	return r.log[position-r.first:], r.more, true // events in the log never change
}

// after returns the position of the first event after a version; false if events after it were dropped.
func (r *resource) after(number uint64) (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number < r.lost {
		return 0, false
	}
	at, _ := slices.BinarySearchFunc(r.log, number+1, func(e event, n uint64) int {
		switch {
		case e.now.number < n:
			return -1
		case e.now.number > n:
			return 1
		}
		return 0
	})
	return r.first + at, true
}

// create stores a new object, which the caller must not change afterwards.
func (r *resource) create(o object, dry bool) (*version, error) {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName() + rand.String(5))
	}
	if o.GetName() == "" {
		return nil, apierrors.NewBadRequest("an object needs a name")
	}
	namespaces := r.server.resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	if r.kind.namespaced && namespaces.get(keyOf("", o.GetNamespace())) == nil {
		return nil, namespaces.notFound(o.GetNamespace())
	}
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	o.SetGeneration(1)
	o.SetDeletionTimestamp(nil)
	if r.kind.has("status") {
		rules.SetPart(o, nil, "status")
	}
	if pod, ok := o.(*corev1.Pod); ok {
		Complete(&pod.Spec)
		pod.Status.Phase = corev1.PodPending
	}
	key := keyOf(o.GetNamespace(), o.GetName())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.objects[key] != nil {
		return nil, apierrors.NewAlreadyExists(r.kind.GroupResource(), o.GetName())
	}
	if dry {
		return &version{object: o, key: key}, nil
	}
	return r.store(nil, o, key), nil
}

// update changes an object by a function that makes a new one from a version that it must not change, and is
// called again if another write came between. Immutable fields are restored, and a change without effect
// makes no version.
func (r *resource) update(ctx context.Context, key, name, subresource string, dry bool,
	change func(*version) (object, error)) (*version, error) {
	for ctx.Err() == nil {
		before := r.get(key)
		if before == nil {
			return nil, r.notFound(name)
		}
		o, err := change(before)
		if err != nil {
			return nil, err
		}
		if err := rules.Guard(r.kind.GroupResource(), name, before, o.GetUID(), o.GetResourceVersion()); err != nil {
			return nil, err
		}
		if o, err = rules.Settle(before.object, o, subresource, r.kind.has("status"), reflect.DeepEqual); err != nil {
			return nil, err
		}
		after := &version{object: o, key: key, number: before.number}
		same, err := r.same(before, after)
		switch {
		case err != nil:
			return nil, err
		case same:
			return before, nil
		case dry:
			return after, nil
		}
		if now := r.replace(before, o); now != nil {
			return now, nil
		}
	}
	return nil, context.Cause(ctx)
}

// change is a write of the server itself, without guards. The function makes a new object from a version that
// it must not change, or nil if there is nothing to change.
func (r *resource) change(ctx context.Context, key string, change func(object) object) {
	for ctx.Err() == nil {
		before := r.get(key)
		if before == nil {
			return
		}
		o := change(before.object)
		if o == nil || r.replace(before, o) != nil {
			return
		}
	}
}

// replace stores an object unless there is another version by now. An object that is being deleted and has no
// finalizers left is removed.
func (r *resource) replace(before *version, o object) *version {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.objects[before.key] != before {
		return nil
	}
	if rules.Gone(o) {
		now := r.store(before, o, before.key)
		r.store(now, nil, before.key)
		return now
	}
	return r.store(before, o, before.key)
}

func (r *resource) same(before, after *version) (bool, error) {
	a, ok := before.object.(*unstructured.Unstructured)
	if ok {
		return reflect.DeepEqual(a.Object, after.object.(*unstructured.Unstructured).Object), nil
	}
	f := form{protobuf: true}
	was, err := before.bytes(f)
	if err != nil {
		return false, err
	}
	is, err := after.bytes(f)
	return bytes.Equal(was, is), err
}

// remove deletes an object, or begins to: pods have their grace, and finalizers hold it.
func (r *resource) remove(key, name string, options *metav1.DeleteOptions) (*version, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.objects[key]
	if before == nil {
		return nil, r.notFound(name)
	}
	if err := rules.GuardDeletion(r.kind.GroupResource(), name, before, options.Preconditions); err != nil {
		return nil, err
	}
	if len(options.DryRun) > 0 {
		return before, nil
	}
	if left := rules.Delete(before.object, options, time.Now()); left != before.object {
		return r.store(before, left, key), nil
	}
	return before, nil
}

// Complete sets what the API server sets in the spec of a pod that leaves it out.
func Complete(spec *corev1.PodSpec) {
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	if spec.DNSPolicy == "" {
		spec.DNSPolicy = corev1.DNSClusterFirst
	}
	if spec.SchedulerName == "" {
		spec.SchedulerName = corev1.DefaultSchedulerName
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.TerminationGracePeriodSeconds == nil {
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		spec.TerminationGracePeriodSeconds = &grace
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if c.TerminationMessagePath == "" {
			c.TerminationMessagePath = corev1.TerminationMessagePathDefault
		}
		if c.TerminationMessagePolicy == "" {
			c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
		}
	}
}
