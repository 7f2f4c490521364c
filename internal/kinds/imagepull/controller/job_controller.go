package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Source secrets are read by name; nothing lists or watches the secrets of users. The copies are in the
// namespace of the node daemons.
//
// +kubebuilder:rbac:groups="",roleName=kruise-manager-image-pull-role,resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",namespace=kruise-daemon-config,roleName=kruise-pull-secrets-role,resources=secrets,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups="",roleName=kruise-manager-image-pull-role,resources=namespaces,resourceNames=kruise-daemon-config,verbs=get
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=imagepulljobs/finalizers,verbs=update

const (
	sourcesEvery = time.Minute // how often the sources of a running job's secrets are read
	tries        = 5           // attempts to write a NodeImage that others write too
)

// JobReconciler carries out plans of ImagePullJobs. Its fields are exported for tests.
type JobReconciler struct {
	*reconcile.API
	Events  reconcile.Recorder
	Secrets *Secrets
	Options Options
	Random  func() float64
	meters  *meters
	rooms   imagepull.Rooms
}

type (
	jobController = reconcile.Controller[*appsv1beta1.ImagePullJob, jobMemory]
	jobSession    = reconcile.Session[*appsv1beta1.ImagePullJob, jobMemory]
)

// jobMemory is what is remembered about a job between passes.
type jobMemory struct {
	synced syncedSecrets
	// refused holds the nodes whose NodeImages rejected the job.
	refused refusals
}

// refusals holds what was rejected at the last attempt, and since when.
type refusals map[string]time.Time

// took records whether a write was accepted.
func (r *refusals) took(name string, err error, now time.Time) {
	switch {
	case err == nil:
		delete(*r, name)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err), tooLarge(err):
		if *r == nil {
			*r = refusals{}
		}
		if _, before := (*r)[name]; !before {
			(*r)[name] = now
		}
	}
}

// tooLarge reports whether an object cannot be stored because of its size. The errors of the store, and of
// the connection to it, have no code of their own.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsInternalError(err) &&
		(strings.Contains(err.Error(), "request is too large") ||
			strings.Contains(err.Error(), "message larger than max"))
}

// syncedSecrets holds the references to a job's secrets since they were last synchronized.
type syncedSecrets struct {
	refs     []appsv1beta1.ReferenceObject
	problems []string
	at       time.Time
}

func setupJobs(mgr ctrl.Manager, options Options) error {
	meters, secrets := newMeters(), options.API(mgr)
	secrets.Own = nil
	r := &JobReconciler{
		API:     options.API(mgr),
		Events:  reconcile.NewRecorder(mgr.GetEventRecorder("imagepulljob-controller")),
		Options: options,
		Secrets: &Secrets{API: secrets, Namespace: options.Namespace, Copies: meters.copies},
		Random:  rand.Float64,
		meters:  meters,
	}

	if err := mgr.Add(manager.RunnableFunc(r.Secrets.start)); err != nil {
		return fmt.Errorf("adding what looks after copies of pull secrets: %w", err)
	}
	mapping := &jobEvents{reader: mgr.GetClient(), rooms: &r.rooms}
	options.Workers = options.JobWorkers
	return r.controller().Complete("imagepulljob", options.Options, ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.ImagePullJob{}).
		Watches(&appsv1beta1.NodeImage{}, mapping.ofNodeImages()).
		Watches(&corev1.Pod{}, mapping.ofPods()), r.meters.all()...)
}

func (r *JobReconciler) controller() *jobController {
	return &jobController{API: r.API, Events: r.Events, Pass: r.pass, Absent: r.absent}
}

// absent releases what an earlier job of that name left.
func (r *JobReconciler) absent(ctx context.Context, name types.NamespacedName) (reconcile.Outcome, error) {
	r.meters.forget(name)
	return reconcile.Outcome{}, r.Secrets.Release(ctx, name)
}

// pass makes one pass over a job.
func (r *JobReconciler) pass(ctx context.Context, of *jobSession) (reconcile.Outcome, error) {
	job := of.Object
	s := imagepull.JobSnapshot{Job: job, Now: r.Now(), Rooms: &r.rooms}
	running := job.DeletionTimestamp == nil && job.Status.CompletionTime == nil
	s.NotReadySince = func(node string) (time.Time, bool) { return r.notReadySince(ctx, node) }
	var unread error // why the secrets are not known
	if running {
		if err := r.complete(ctx, of.Kept, &s); err != nil {
			return reconcile.Outcome{}, err
		}
		s.Secrets, unread = r.secrets(ctx, s.Job, &of.Kept.synced)
	}

	plan := imagepull.PlanJob(s)
	if unread != nil { // no node pulls without them, but the time of the job passes
		plan.Assign, plan.Supply = nil, nil
	}
	if !plan.Idle() {
		log.FromContext(ctx).V(3).Info("Plan", "plan", plan.Why, "assign", len(plan.Assign), "supply",
			len(plan.Supply), "drop", len(plan.Drop))
	}

	r.meters.observe(job, plan, running)
	if err := r.apply(ctx, of.Kept, &s, plan); err != nil {
		return reconcile.Outcome{After: plan.After}, err
	}
	if !running {
		r.Own.Forget(job.UID)
		of.Forget()
	}

	if unread != nil {
		return reconcile.Outcome{After: plan.After}, unread
	}

	after := plan.After
	if running && len(job.Spec.PullSecrets) > 0 && (after == 0 || after > sourcesEvery) {
		after = sourcesEvery
	}

	return reconcile.Outcome{After: after}, nil
}

// complete reads the nodes of a running job.
func (r *JobReconciler) complete(
	ctx context.Context, kept *jobMemory, s *imagepull.JobSnapshot,
) (err error) {
	job := s.Job
	if !slices.Contains(job.Finalizers, pub.PullJobProtection) { // before there is anything to release
		finalizers := append(slices.Clone(job.Finalizers), pub.PullJobProtection)
		if job, err = reconcile.Merge(ctx, r.For(job.UID), job, map[string]any{"finalizers": finalizers}, nil,
			""); err != nil {
			return fmt.Errorf("adding the finalizer: %w", err)
		}
		s.Job = job
	}

	if s.Nodes, err = r.nodes(ctx, job); err != nil {
		return err
	}

	var owned appsv1beta1.NodeImageList
	if err := r.Client.List(ctx, &owned, client.MatchingFields{ownersOf: string(job.UID)},
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeImages of the job: %w", err)
	}

	for i := range owned.Items {
		s.Owned = append(s.Owned, &owned.Items[i])
	}

	s.Owned = reconcile.Overlay(r.Own, job.UID, s.Owned,
		func(node *appsv1beta1.NodeImage) bool { return slices.Contains(indexOwners(node), string(job.UID)) })
	for i, node := range s.Nodes {
		s.Nodes[i], _ = reconcile.Newest(r.Own, job.UID, node, true)
	}

	s.Refused = kept.refused
	return nil
}

// secrets synchronizes the copies of the job's secrets, at most once per sourcesEvery. With an error it returns the
// references of the last time.
func (r *JobReconciler) secrets(
	ctx context.Context, job *appsv1beta1.ImagePullJob, before *syncedSecrets,
) ([]appsv1beta1.ReferenceObject, error) {
	if !before.at.IsZero() && r.Now().Sub(before.at) < sourcesEvery {
		return before.refs, nil
	}

	refs, problems, err := r.Secrets.Sync(ctx, job)
	if err != nil {
		if !apierrors.IsConflict(err) {
			r.Events.Event(job, corev1.EventTypeWarning, "FailedSyncSecrets", err.Error())
		}
		return before.refs, err
	}

	if len(problems) > 0 && !slices.Equal(problems, before.problems) {
		r.Events.Event(job, corev1.EventTypeWarning, "MissingPullSecret",
			strings.Join(problems, "; ")+"; the image is pulled without what is missing")
	}

	*before = syncedSecrets{refs: refs, problems: problems, at: r.Now()}
	return refs, nil
}

func (r *JobReconciler) apply(
	ctx context.Context, kept *jobMemory, s *imagepull.JobSnapshot, plan *imagepull.JobPlan,
) (err error) {
	job, w := s.Job, r.For(s.Job.UID)
	if plan.Finish {
		if len(job.Spec.PullSecrets) > 0 {
			r.Secrets.uses(client.ObjectKeyFromObject(job).String()) // maybe by the word of a manager that led before
			if err := r.Secrets.Release(ctx, client.ObjectKeyFromObject(job)); err != nil {
				return err
			}
		}
		finalizers := slices.DeleteFunc(slices.Clone(job.Finalizers),
			func(f string) bool { return f == pub.PullJobProtection })
		if job, err = reconcile.Merge(ctx, w, job, map[string]any{"finalizers": finalizers}, nil,
			""); err != nil {
			return client.IgnoreNotFound(err)
		}
	}

	if plan.Delete {
		if err := w.Delete(ctx, job); err != nil {
			return fmt.Errorf("deleting the finished job: %w", err)
		}
		return nil
	}

	assigner := imagepull.Assigner{
		Job:      job,
		Secrets:  s.Secrets,
		ExtraTTL: r.Options.ExtraTTL,
		Busy:     func(owner corev1.ObjectReference) bool { return r.busy(ctx, owner) },
		Now:      s.Now,
		Random:   r.Random,
	}
	drop := func(node *appsv1beta1.NodeImage) (map[string]*appsv1beta1.ImageSpec, error) { //nolint:unparam // as assigner.Assign
		return assigner.Drop(node), nil
	}
	known := map[string]*appsv1beta1.NodeImage{}

	for _, node := range slices.Concat(s.Owned, s.Nodes) {
		known[node.Name] = node
	}

	assigned := slices.Concat(plan.Assign, plan.Supply)
	errs := w.Each(ctx, len(assigned)+len(plan.Drop), func(i int) error {
		if i < len(assigned) {
			return r.change(ctx, job.UID, known[assigned[i]], assigner.Assign)
		}
		return r.change(ctx, job.UID, known[plan.Drop[i-len(assigned)]], drop)
	})

	for i, name := range assigned {
		kept.refused.took(name, errs[i], s.Now)
	}

	err = errors.Join(errs...)
	if plan.Status != nil {
		status := map[string]any{"status": statusDocument(plan.Status)}
		if _, e := reconcile.Merge(ctx, w, job, nil, status, "status"); client.IgnoreNotFound(e) != nil {
			err = errors.Join(err, fmt.Errorf("writing the status: %w", e))
		}
	}

	return err
}

// busy reports whether an owner of a tag still counts it among what is done.
func (r *JobReconciler) busy(ctx context.Context, owner corev1.ObjectReference) bool {
	job := &appsv1beta1.ImagePullJob{}
	key := types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}
	return imagepull.IsJob(owner) && r.Client.Get(ctx, key, job, client.UnsafeDisableDeepCopy) == nil &&
		job.UID == owner.UID && imagepull.Counts(job)
}

// statusDocument returns a status as a merge patch, in which an empty list is null.
func statusDocument(status *appsv1beta1.ImagePullJobStatus) map[string]any {
	document := map[string]any{
		"startTime":      status.StartTime,
		"completionTime": status.CompletionTime,
		"desired":        status.Desired,
		"active":         status.Active,
		"succeeded":      status.Succeeded,
		"failed":         status.Failed,
		"message":        status.Message,
		"failedNodes":    nil,
	}
	if len(status.FailedNodes) > 0 {
		document["failedNodes"] = status.FailedNodes
	}

	return document
}

// change writes to one NodeImage. After a conflict it reads the NodeImage and decides again.
func (r *JobReconciler) change(
	ctx context.Context, job types.UID, node *appsv1beta1.NodeImage,
	decide func(*appsv1beta1.NodeImage) (map[string]*appsv1beta1.ImageSpec, error),
) error {
	w := r.For(job)
	for try := 1; ; try++ {
		images, err := decide(node)
		if len(images) == 0 || err != nil {
			if errors.Is(err, imagepull.ErrFull) {
				err = nil // the next plan counts it
			}
			return err
		}
		_, err = reconcile.Merge(ctx, w, node, nil, map[string]any{"spec": imagesPatch(node, images)}, "")
		switch {
		case client.IgnoreNotFound(err) == nil: // otherwise the node is gone
			return nil
		case !apierrors.IsConflict(err) || try == tries:
			return fmt.Errorf("patching NodeImage %s: %w", node.Name, err)
		}
		fresh := &appsv1beta1.NodeImage{}
		if err := w.Read(ctx, types.NamespacedName{Name: node.Name}, fresh); err != nil {
			return client.IgnoreNotFound(err)
		}
		node = fresh
	}
}
