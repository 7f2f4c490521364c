package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// pass makes one pass over an AdvancedCronJob.
func (r *Reconciler) pass(ctx context.Context, s *session) (reconcile.Outcome, error) {
	// An orphan that cannot be released does not keep a run from beginning.
	leftovers := r.releaseOrphans(ctx, s.Name, s.Object.UID)

	begin := r.Now()
	present, absent := r.served.Of(advancedcronjob.Kinds)
	snapshot := advancedcronjob.Snapshot{CronJob: s.Object, Absent: absent, Now: r.Now(), Zone: r.Zone,
		Counted: s.Kept.counted}
	for _, kind := range present {
		children, err := r.children(ctx, s.Object, kind)
		if err != nil {
			return reconcile.Outcome{}, err
		}
		snapshot.Children = append(snapshot.Children, children...)
	}
	if err := missing(ctx, s, snapshot.Children); err != nil {
		return reconcile.Outcome{}, err
	}

	plan := advancedcronjob.Make(snapshot)
	done := reconcile.Outcome{After: plan.After, Planning: r.Now().Sub(begin),
		Headline: string(plan.Reason) + ": " + plan.Message,
		Record: func() []any {
			return []any{"reason", plan.Reason, "message", plan.Message, "next", plan.Next}
		}}
	err := errors.Join(r.apply(ctx, s, plan), leftovers)
	reconcile.MinRequeue(&done.After, s.Again())
	return done, err
}

// children returns the children of a kind that the AdvancedCronJob controls.
func (r *Reconciler) children(
	ctx context.Context, cronJob *appsv1beta1.AdvancedCronJob, kind advancedcronjob.Kind,
) ([]advancedcronjob.Child, error) {
	of := []client.ListOption{client.InNamespace(cronJob.Namespace),
		client.MatchingFields{byOwner: string(cronJob.UID)}, client.UnsafeDisableDeepCopy}
	switch list, err := r.list(ctx, kind, of...); list := list.(type) {
	case *batchv1.JobList:
		return laid(r, cronJob, list.Items), err
	case *appsv1beta1.BroadcastJobList:
		return laid(r, cronJob, list.Items), err
	case *appsv1beta1.ImageListPullJobList:
		return laid(r, cronJob, list.Items), err
	default:
		return nil, err
	}
}

// list lists objects of a kind of children.
func (r *Reconciler) list(
	ctx context.Context, kind advancedcronjob.Kind, options ...client.ListOption,
) (list client.ObjectList, err error) {
	switch kind {
	case advancedcronjob.Job:
		list = &batchv1.JobList{}
	case advancedcronjob.BroadcastJob:
		list = &appsv1beta1.BroadcastJobList{}
	case advancedcronjob.ImageListPullJob:
		list = &appsv1beta1.ImageListPullJobList{}
	}
	if err := r.Client.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing %ss: %w", kind, err)
	}
	return list, nil
}

type object[T any] interface {
	*T
	client.Object
}

// laid returns children with own writes laid over them.
func laid[T any, P object[T]](
	r *Reconciler, cronJob *appsv1beta1.AdvancedCronJob, items []T,
) []advancedcronjob.Child {
	objects := make([]P, len(items))
	for i := range items {
		objects[i] = &items[i]
	}
	objects = reconcile.Overlay(r.Own, cronJob.UID, objects,
		func(o P) bool { return advancedcronjob.OwnerOf(o) == cronJob.UID })
	children := make([]advancedcronjob.Child, len(objects))
	for i := range objects {
		children[i] = advancedcronjob.ChildOf(objects[i])
	}
	return children
}

// mostMissing is how many children are looked for in a pass. Where it matters whether there is one, there is one, or few.
const mostMissing = 10

// missing looks in the API server for children that the status lists and the caches do not show, where a run may not begin
// beside them: a replica that begins to lead may have read an API server that lags. The next plan knows what is found.
func missing(ctx context.Context, s *session, children []advancedcronjob.Child) error {
	if s.Object.Spec.ConcurrencyPolicy == appsv1beta1.ConcurrencyAllow {
		return nil
	}
	known := map[types.UID]bool{}
	for _, child := range children {
		known[child.Object.GetUID()] = true
	}
	listed := s.Object.Status.Active
	for _, ref := range listed[max(len(listed)-mostMissing, 0):] {
		kind := advancedcronjob.Kind(ref.Kind)
		if known[ref.UID] || !slices.Contains(advancedcronjob.Kinds, kind) {
			continue
		}
		child := empty(kind)
		switch err := s.Read(ctx, types.NamespacedName{Namespace: s.Name.Namespace, Name: ref.Name}, child); {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		case err != nil:
			return fmt.Errorf("looking for %s %s, which the status lists: %w", kind, ref.Name, err)
		case advancedcronjob.OwnerOf(child) == s.Object.UID && !known[child.GetUID()]: // otherwise it was replaced under its name
			return reconcile.ErrStalePlan
		}
	}
	return nil
}

// releaseOrphans releases children of AdvancedCronJobs that are gone, because nobody else would.
func (r *Reconciler) releaseOrphans(ctx context.Context, name types.NamespacedName, owner types.UID) error {
	loose := *r.API
	loose.Own = nil // no plan is made from these writes

	var errs []error
	kinds, _ := r.served.Of(advancedcronjob.Kinds)
	for _, kind := range kinds {
		list, err := r.list(ctx, kind, client.InNamespace(name.Namespace),
			client.MatchingFields{byUnrecorded: name.Name}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			child, ok := item.(client.Object)
			if of := advancedcronjob.OwnerOf(child); !ok || of != "" && of == owner {
				return nil
			}
			_, err := release(ctx, loose.For(""), child)
			errs = append(errs, err) // the others are released nevertheless
			return nil
		}); err != nil {
			return err
		}
	}

	return errors.Join(errs...)
}

// release removes the finalizer from a child whose run is recorded or need not be. It returns the resulting
// version of the child, or the child as it was if it is gone.
func release(ctx context.Context, w *reconcile.Writer, child client.Object) (client.Object, error) {
	rest := slices.DeleteFunc(slices.Clone(child.GetFinalizers()),
		func(finalizer string) bool { return finalizer == pub.UnrecordedRun })
	left, err := reconcile.Merge(ctx, w, child, map[string]any{"finalizers": rest}, nil, "")
	switch {
	case apierrors.IsNotFound(err):
		return child, nil
	case err != nil:
		return child, fmt.Errorf("letting %s go: %w", child.GetName(), err)
	}
	return left, nil
}

// apply applies a plan.
func (r *Reconciler) apply(ctx context.Context, s *session, plan *advancedcronjob.Plan) error {
	if err := writeStatus(ctx, s, &plan.Status); err != nil {
		return err
	}
	r.tell(s, plan)
	left, err := tidy(ctx, s, plan)
	if plan.Run == nil {
		return err
	}
	return errors.Join(r.begin(ctx, s, plan, left), err)
}

// writeStatus writes the status if it changed.
func writeStatus(ctx context.Context, s *session, status *appsv1beta1.AdvancedCronJobStatus) error {
	body, err := reconcile.StatusPatch(s.Object, &s.Object.Status, status)
	if err != nil || body == nil {
		return err
	}
	written, err := reconcile.Patch(ctx, s.Writer, s.Object, body, "status")
	if err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("writing status: %w", err))
	}
	s.Object = written
	return nil
}

// tell records events about what is new.
func (r *Reconciler) tell(s *session, plan *advancedcronjob.Plan) {
	for _, child := range plan.Finished {
		message := fmt.Sprintf("%s %s", child, child.Phase)
		if child.Why != "" {
			message += ": " + child.Why
		}
		s.Event(corev1.EventTypeNormal, "SawCompletedJob", message)
	}

	told := map[string]bool{}
	for _, note := range plan.Notes {
		if told[note.Reason] = true; s.News(note.Reason, note.About) {
			s.Event(note.Type, note.Reason, note.Message)
		}
	}

	// An error in the object is reported again when it occurs again. What holds up runs occurs with each run,
	// and is reported once.
	for _, reason := range []string{string(advancedcronjob.NoZone), string(advancedcronjob.NoSchedule),
		advancedcronjob.FailedCreate} {
		if !told[reason] {
			s.News(reason, "")
		}
	}

	s.Kept.counted = plan.Counted
	r.meters.left(s.Name.Namespace, s.Name.Name, plan.Dropped)
}

// newest has the versions of children that this pass left.
type newest map[types.UID]client.Object

func (n newest) of(child advancedcronjob.Child) client.Object {
	if object := n[child.Object.GetUID()]; object != nil {
		return object
	}
	object, _ := child.Object.(client.Object)
	return object
}

// tidy releases children whose run is recorded, and deletes those beyond the history limits. Errors do not
// keep a run from beginning.
func tidy(ctx context.Context, s *session, plan *advancedcronjob.Plan) (newest, error) {
	left := newest{}
	var errs []error
	released := make([]client.Object, len(plan.Release))
	errs = append(errs, s.Each(ctx, len(plan.Release), func(i int) (err error) {
		released[i], err = release(ctx, s.Writer, left.of(plan.Release[i]))
		return err
	})...)
	for _, object := range released {
		if object != nil {
			left[object.GetUID()] = object
		}
	}

	errs = append(errs, remove(ctx, s, plan.Delete, left, "history has more than its limit")...)
	return left, errors.Join(errs...)
}

// remove deletes children with background propagation.
func remove(
	ctx context.Context, s *session, children []advancedcronjob.Child, left newest, why string,
) []error {
	return s.Each(ctx, len(children), func(i int) error {
		child := children[i]
		err := s.Delete(ctx, left.of(child), client.PropagationPolicy(metav1.DeletePropagationBackground))
		switch {
		case err == nil:
			s.Event(corev1.EventTypeNormal, "SuccessfulDelete",
				fmt.Sprintf("deleted %s: %s", child, why))
		case !reconcile.IsStalePlan(err):
			err = fmt.Errorf("deleting %s: %w", child, err)
			s.Event(corev1.EventTypeWarning, "FailedDelete", err.Error())
		}
		return err
	})
}

// begin begins a run.
func (r *Reconciler) begin(
	ctx context.Context, s *session, plan *advancedcronjob.Plan, left newest,
) error {
	if err := errors.Join(remove(ctx, s, plan.Replace, left, "the next run replaces it")...); err != nil {
		return err
	}

	created, err := r.create(ctx, s, plan)
	if reconcile.IsNamespaceTerminating(err) {
		return nil
	}
	if err != nil {
		if err = fmt.Errorf("creating %s %s: %w", plan.Kind, plan.Run.Name,
			err); !reconcile.IsStalePlan(err) {
			s.Event(corev1.EventTypeWarning, advancedcronjob.FailedCreate, err.Error())
		}
		return err
	}

	var child *advancedcronjob.Child
	if created != nil {
		of := advancedcronjob.ChildOf(created)
		child = &of
	}
	status := plan.Started(child)
	if err := writeStatus(ctx, s, &status); err != nil || child == nil || !child.Held() {
		return err
	}

	_, err = release(ctx, s.Writer, created)
	return err
}

// create creates the child of a run. It returns nil if another object has that name.
func (r *Reconciler) create(
	ctx context.Context, s *session, plan *advancedcronjob.Plan,
) (client.Object, error) {
	document, err := advancedcronjob.NewChild(s.Object, plan.Kind, plan.Run)
	if err != nil {
		return nil, err
	}

	// Another manager may lead by now: it may have begun the run, which may be over, with its child gone.
	now := &appsv1beta1.AdvancedCronJob{}
	if err := s.Live.Get(ctx, client.ObjectKeyFromObject(s.Object), now); err != nil {
		return nil, reconcile.StaleIfNotFound(fmt.Errorf("reading %s, before a run begins: %w", s.Object.Name, err))
	}
	if last := now.Status.LastScheduleTime; now.UID != s.Object.UID || last != nil && !last.Time.Before(plan.Run.Time) {
		return nil, reconcile.ErrStalePlan
	}

	child := empty(plan.Kind)
	if err = s.Create(ctx, document, child); err == nil {
		late := r.Now().Sub(plan.Run.Time)
		r.meters.started(plan.Kind, late)
		s.Event(corev1.EventTypeNormal, "SuccessfulCreate",
			fmt.Sprintf("created %s %s for the run of %s", plan.Kind, plan.Run.Name,
				plan.Run.Time.Format(time.RFC3339)))
		return child, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, err
	}

	child = empty(plan.Kind)
	if err := s.Read(ctx, types.NamespacedName{Namespace: s.Name.Namespace, Name: plan.Run.Name},
		child); err != nil {
		return nil, reconcile.StaleIfNotFound(err)
	}
	if advancedcronjob.OwnerOf(child) == s.Object.UID {
		return child, nil
	}

	s.Event(corev1.EventTypeWarning, "UnexpectedJob",
		fmt.Sprintf("%s %s is there already and not of this %s: the run of %s is left out", plan.Kind,
			plan.Run.Name, advancedcronjob.Name, plan.Run.Time.Format(time.RFC3339)))
	return nil, nil
}
