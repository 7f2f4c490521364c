package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// chunk is how many namespaces a pass looks at, so that the next one starts from the newest spec, and a
// status is written on the way. mostBatch is how many namespaces are worked on together at most.
const chunk, mostBatch = 1000, 1024

// pass looks at the namespaces that have changed, or at all of them if the spec has.
func (r *Reconciler) pass(ctx context.Context, s *session) (reconcile.Outcome, error) {
	rd := s.Object
	if rd.DeletionTimestamp != nil {
		r.stop(rd.UID)
		return reconcile.Outcome{Headline: "it is being deleted: nothing is created or updated",
			Record: nothing}, nil
	}

	d := r.of(rd.Name, rd.UID)
	r.loadSpec(rd, d)
	if d.fault != nil {
		return unreadable(ctx, s, d)
	}

	ready, err := d.copies.ready()
	switch {
	case err != nil && !ready:
		r.blind(ctx, d, err)
	case !ready:
		return reconcile.Outcome{Headline: "waits for the list of " + d.copies.of.Kind + "s named " +
			d.copies.of.Name, Record: nothing}, nil
	default:
		if d.all() {
			if err := r.enqueueAll(ctx, d); err != nil {
				return reconcile.Outcome{}, err
			}
		}
		d.due(s.Begun)
		if err := r.work(ctx, rd, d); err != nil {
			if reconcile.IsStalePlan(err) {
				return reconcile.Outcome{After: reconcile.RetryAfter}, nil
			}
			return reconcile.Outcome{}, err
		}
	}

	done := reconcile.Outcome{After: d.schedule.next(r.Now())}
	left, whole := d.left()
	if left > 0 || whole && ready {
		done.Progress = ready
		reconcile.MinRequeue(&done.After, time.Millisecond)
	} else {
		d.batch = 0
	}

	// Until all namespaces were looked at once, the stored status is better than what is known.
	if left == 0 || rd.Status.ObservedGeneration != rd.Generation {
		status := d.counts.Status(&rd.Status, rd.Generation, r.Now())
		after, err := s.WriteStatus(ctx, &rd.Status, &status, true)
		if err != nil {
			return done, err
		}
		reconcile.MinRequeue(&done.After, after)
		if left == 0 {
			reconcile.MinRequeue(&done.After, tell(s, d, &status))
		}
		r.meters.failed(rd.Name, int(status.Failed))
	}

	return done, ctx.Err()
}

func nothing() []any { return nil }

// loadSpec reads the spec if it has changed.
func (r *Reconciler) loadSpec(rd *appsv1beta1.ResourceDistribution, d *distribution) {
	if d.generation == rd.Generation && (d.resource != nil || d.fault != nil) {
		return
	}

	resource, unreadable := resourcedistribution.Read(rd)
	targets, unselectable := resourcedistribution.TargetsOf(rd, r.own...)
	if d.generation, d.fault = rd.Generation, errors.Join(unreadable, unselectable); d.fault != nil {
		d.resource = nil
		d.setTargets(nil)
		return
	}

	if d.resource != nil && d.resource.Hash != resource.Hash {
		d.failures, d.schedule = nil, schedule{} // different content is written now
	}

	d.resource = resource.Slim()
	if d.copies == nil || d.copies.of != resource.Of {
		r.watches.leave(d.copies, rd.UID)

		d.counts = resourcedistribution.Tally{}
		d.copies = r.watches.use(resource.Of, rd.UID, d)
	}
	d.setTargets(targets)
}

// unreadable reports what is wrong with a ResourceDistribution that was stored without validation. Nothing is
// done for it.
func unreadable(ctx context.Context, s *session, d *distribution) (reconcile.Outcome, error) {
	s.Once(corev1.EventTypeWarning, distributeFailed, d.fault.Error())
	before := &s.Object.Status
	status := resourcedistribution.Unreadable(before, s.Object.Generation, d.fault, s.Now())
	after, err := s.WriteStatus(ctx, before, &status, true)
	return reconcile.Outcome{After: after, Headline: d.fault.Error(), Record: nothing}, err
}

// namespaces lists all namespaces.
func (r *Reconciler) namespaces(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	return all, nil
}

// enqueueAll marks all namespaces that a new spec may concern: targets, former targets, and those that have
// an object. Targets count from now on, but not as correct yet.
func (r *Reconciler) enqueueAll(ctx context.Context, d *distribution) error {
	all, err := r.namespaces(ctx)
	if err != nil {
		d.mark("")
		return err
	}

	marked := map[string]bool{}
	for i := range all.Items {
		if ns := namespaceOf(all.Items[i].Name, &all.Items[i]); d.targets.Wants(ns.Name,
			!ns.Terminating, ns.Labels) {
			marked[ns.Name] = true
		}
	}

	for name := range d.targets.Included() {
		if d.targets.Wants(name, false, nil) {
			marked[name] = true
		}
	}

	for name := range marked {
		if outcome, known := d.counts.Of(name); !known || outcome.Failure == "" {
			d.counts.Set(name, resourcedistribution.Outcome{Target: true,
				Failure: resourcedistribution.Pending})
		}
	}

	for _, name := range d.copies.namespaces() {
		marked[name] = true
	}

	d.counts.Namespaces(func(name string) { marked[name] = true })
	names := make([]string, 0, len(marked))
	for name := range marked {
		names = append(names, name)
	}

	slices.Sort(names)
	for _, name := range names {
		d.mark(name)
	}

	return nil
}

// blind records that nothing is known of any namespace. Marked namespaces are unmarked, since all of them are
// looked at once there is a list.
func (r *Reconciler) blind(ctx context.Context, d *distribution, why error) {
	d.take(math.MaxInt)
	if all, err := r.namespaces(ctx); err == nil {
		failure := resourcedistribution.Outcome{Target: true,
			Failure: appsv1beta1.ResourceDistributionGetResourceFailed, Reason: why.Error()}
		d.counts = resourcedistribution.Tally{}
		for i := range all.Items {
			if d.targets.Wants(all.Items[i].Name, all.Items[i].DeletionTimestamp == nil,
				all.Items[i].Labels) {
				d.counts.Set(all.Items[i].Name, failure)
			}
		}
		for name := range d.targets.Included() {
			if d.targets.Wants(name, false, nil) {
				d.counts.Set(name, failure)
			}
		}
	}
}

// task is what is to be done in one namespace, and its outcome.
type task struct {
	namespace resourcedistribution.Namespace
	repaired  bool
	outcome   resourcedistribution.Outcome
	err       error
	wrote     bool
}

// work decides about marked namespaces, and carries out the decisions.
func (r *Reconciler) work(ctx context.Context, rd *appsv1beta1.ResourceDistribution, d *distribution) error {
	now := r.Now()
	var tasks []*task
	repairs := false
	taken := d.take(chunk)
	for i, name := range taken {
		ns, err := r.namespace(ctx, name)
		if err != nil {
			for _, t := range tasks {
				d.mark(t.namespace.Name)
			}
			for _, left := range taken[i:] {
				d.mark(left)
			}
			return err
		}

		copied, doubt := d.copies.in(name)
		verdict := resourcedistribution.Decide(&resourcedistribution.Snapshot{Resource: d.resource,
			Targets: d.targets, Owner: rd.UID, Namespace: ns, Copy: copied})
		if verdict.Action == resourcedistribution.Keep && !doubt {
			d.counts.Set(name, verdict.Outcome)
			continue
		}
		before, known := d.counts.Of(name)
		if until, why := d.held(name, now); !until.IsZero() {
			d.counts.Set(name, resourcedistribution.Outcome{Target: verdict.Target,
				Failure: verdict.Action.Failed(), Reason: why})
			continue
		}

		t := &task{namespace: ns, repaired: verdict.Action == resourcedistribution.Delete ||
			known && before.Target &&
				before.Failure != resourcedistribution.Pending &&
				before.Failure != appsv1beta1.ResourceDistributionNamespaceNotExists}
		repairs = repairs || t.repaired
		tasks = append(tasks, t)
	}

	if len(tasks) == 0 {
		return nil
	}

	if repairs {
		// Copies that were correct no longer are. If that is because the ResourceDistribution is being
		// deleted, which the cache may not show yet, the copies are being garbage collected.
		if gone, err := r.gone(ctx, rd); gone || err != nil {
			for _, t := range tasks {
				d.mark(t.namespace.Name)
			}
			if gone {
				return reconcile.ErrStalePlan
			}
			return err
		}
	}

	full, err := resourcedistribution.Read(rd)
	if err != nil {
		return err
	}

	w := r.writer(rd.UID)
	for begun := 0; begun < len(tasks); {
		d.batch = min(max(2*d.batch, 1), mostBatch)
		batch := tasks[begun:min(begun+d.batch, len(tasks))]
		begun += len(batch)
		for i, err := range w.Each(ctx, len(batch), func(i int) error {
			return r.act(ctx, w, rd, d, full, batch[i])
		}) {
			if err != nil && batch[i].err == nil {
				batch[i].err = err
				batch[i].outcome = resourcedistribution.Outcome{Target: true,
					Failure: appsv1beta1.ResourceDistributionGetResourceFailed, Reason: err.Error()}
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, t := range batch {
			r.note(d, t)
		}
	}

	return nil
}

// note records the outcome of a task.
func (r *Reconciler) note(d *distribution, t *task) {
	now, name := r.Now(), t.namespace.Name
	if t.wrote {
		d.wrote(name, t.repaired, t.err, now)
	}
	if t.err != nil {
		d.failed(name, t.err, now)
	}
	d.counts.Set(name, t.outcome)
}

// writer returns a writer of copies. Its writes are laid over the watches by name, not over the manager's
// caches, which do not hold copies.
func (r *Reconciler) writer(owner types.UID) *reconcile.Writer {
	loose := *r.API
	loose.Own = nil
	return loose.For(owner)
}

func (r *Reconciler) namespace(ctx context.Context, name string) (resourcedistribution.Namespace, error) {
	object := emptyNamespace()
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, object, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return namespaceOf(name, nil), nil
	}
	if err != nil {
		return resourcedistribution.Namespace{}, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return namespaceOf(name, object), nil
}

// gone reports whether the ResourceDistribution is gone or being deleted according to the API server.
func (r *Reconciler) gone(ctx context.Context, rd *appsv1beta1.ResourceDistribution) (bool, error) {
	var live appsv1beta1.ResourceDistribution
	err := r.Live.Get(ctx, types.NamespacedName{Name: rd.Name}, &live)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading ResourceDistribution %s: %w", rd.Name, err)
	}
	return live.UID != rd.UID || live.DeletionTimestamp != nil, nil
}

// errStored keeps a copy from being written forever if it is stored differently each time.
var errStored = errors.New(
	"what was stored is not what was written: a webhook, or a controller, may have changed it")

// attempts bounds how often a pass looks again at a namespace in which others write. writes bounds what it
// writes there: a deletion and a creation.
const attempts, writes = 4, 2

// act carries out what is to be done in one namespace. It decides again after each write and each conflict.
func (r *Reconciler) act(
	ctx context.Context, w *reconcile.Writer, rd *appsv1beta1.ResourceDistribution, d *distribution,
	resource *resourcedistribution.Resource, t *task,
) error {
	name, written, refused := t.namespace.Name, 0, error(nil)
	for range attempts {
		copied, doubt := d.copies.in(name)
		if doubt {
			if err := r.look(ctx, w, d.copies, name); err != nil {
				return t.failed(true, resourcedistribution.Keep, err)
			}
			r.others(d, name)
			copied, _ = d.copies.in(name)
		}

		verdict := resourcedistribution.Decide(&resourcedistribution.Snapshot{Resource: resource,
			Targets: d.targets, Owner: rd.UID, Namespace: t.namespace, Copy: copied})
		if t.outcome = verdict.Outcome; verdict.Action == resourcedistribution.Keep {
			return nil
		}
		if written == writes || written > 0 && verdict.Action != resourcedistribution.Create {
			return t.failed(verdict.Target, verdict.Action, errStored)
		}

		err := r.write(ctx, w, rd, d.copies, resource, name, verdict.Action, copied)
		r.meters.wrote(verdict.Action, err)
		switch {
		case err == nil:
			t.wrote, written = true, written+1
			r.others(d, name)
		case reconcile.IsNamespaceTerminating(err) ||
			verdict.Action == resourcedistribution.Create && apierrors.IsNotFound(err):
			// The cache will show soon that the namespace terminates. If the namespace was just created
			// instead, no other event may come for it, so the failure is retried.
			done := t.failed(true, verdict.Action, err)
			if t.outcome = (resourcedistribution.Outcome{Target: true,
				Failure: resourcedistribution.Pending}); d.targets.Included()[name] {
				t.outcome = resourcedistribution.Ended()
			}
			return done
		case !reconcile.IsRejected(err):
			d.copies.doubt(name)
			return t.failed(verdict.Target, verdict.Action, err)
		case reconcile.IsStalePlan(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
			verdict.Action == resourcedistribution.Update && apierrors.IsInvalid(err) && refused == nil:
			d.copies.doubt(name) // what is known is stale; a patch of an old version may look invalid
			refused = err
		default:
			return t.failed(verdict.Target, verdict.Action, err)
		}
	}

	return t.failed(t.outcome.Target, resourcedistribution.Update, errRestless)
}

// failed records that the action failed. It returns nil, since the outcome has the error.
func (t *task) failed(target bool, action resourcedistribution.Action, err error) error {
	t.err, t.outcome = err, resourcedistribution.Outcome{Target: target, Failure: action.Failed(),
		Reason: err.Error()}
	return nil
}

// others lets the other distributions of the same kind and name look at a namespace. What was learned about
// it here is no longer new when the watch delivers it.
func (r *Reconciler) others(but *distribution, namespace string) {
	for _, d := range r.watches.users(but.copies) {
		if d != but {
			d.mark(namespace)
			r.wake(d.name)
		}
	}
}

// look reads the object in a namespace from the API server.
func (r *Reconciler) look(ctx context.Context, w *reconcile.Writer, c *copies, namespace string) error {
	object := c.of.Object()
	before, _ := c.in(namespace)
	switch err := w.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: c.of.Name}, object); {
	case apierrors.IsNotFound(err):
		c.absent(namespace, before)
	case err != nil:
		return err //nolint:wrapcheck // users read it in the status as the API server says it
	default:
		c.answered(namespace, resourcedistribution.CopyOf(object))
	}
	return nil
}

// write carries out an action on exactly the version that it was decided for.
func (r *Reconciler) write(
	ctx context.Context, w *reconcile.Writer, rd *appsv1beta1.ResourceDistribution, c *copies,
	resource *resourcedistribution.Resource, namespace string, action resourcedistribution.Action,
	copied *resourcedistribution.Copy,
) error {
	object := c.of.Object()
	if action == resourcedistribution.Create {
		if err := w.Create(ctx, resource.Document(namespace, resourcedistribution.Owner(rd)),
			object); err != nil {
			return err //nolint:wrapcheck // as above
		}
		c.answered(namespace, resourcedistribution.CopyOf(object))
		return nil
	}

	if action == resourcedistribution.Recreate {
		// A copy that pods need must not be deleted if the namespace would reject its replacement. The API
		// server reports a rejection before it reports that the object exists.
		err := w.Client.Create(ctx,
			&unstructured.Unstructured{Object: resource.Document(namespace, resourcedistribution.Owner(rd))},
			client.DryRunAll)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err //nolint:wrapcheck // as above
		}
	}

	object.SetNamespace(namespace)
	object.SetName(c.of.Name)
	object.SetUID(copied.UID)
	object.SetResourceVersion(copied.Version)
	if action == resourcedistribution.Update {
		body, err := resource.Patch(copied)
		if err != nil {
			return err //nolint:wrapcheck // it says what was done
		}
		left, err := reconcile.Patch(ctx, w, object, body, "")
		if err != nil {
			return err //nolint:wrapcheck // as above
		}
		c.answered(namespace, resourcedistribution.CopyOf(left))
		return nil
	}
	if err := w.Delete(ctx, object,
		client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return err //nolint:wrapcheck // as above
	}

	c.deleted(namespace, copied)
	return nil
}
