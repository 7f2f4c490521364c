package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=imagelistpulljobs,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=imagelistpulljobs/status,verbs=patch
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=imagelistpulljobs/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps.kruise.io,roleName=kruise-manager-nodes-role,resources=imagepulljobs,verbs=get;list;watch;create;patch;delete

const (
	listWorkers = 3
	// childrenOf indexes ImagePullJobs by the list that created them.
	childrenOf = "imagepull.list"
)

// ListReconciler carries out plans of ImageListPullJobs. Its fields are exported for tests.
type ListReconciler struct {
	*reconcile.API
	Events reconcile.Recorder
}

// What is kept of a list between passes are the images whose jobs were rejected.
type (
	listController = reconcile.Controller[*appsv1beta1.ImageListPullJob, refusals]
	listSession    = reconcile.Session[*appsv1beta1.ImageListPullJob, refusals]
)

// refusedLast sorts jobs that were rejected behind the others: an image that a policy forbids must not
// prevent the others from being pulled.
func (r refusals) refusedLast(jobs []*appsv1beta1.ImagePullJob) []*appsv1beta1.ImagePullJob {
	var first, last []*appsv1beta1.ImagePullJob
	for _, job := range jobs {
		if _, refused := r[job.Spec.Image]; refused {
			last = append(last, job)
		} else {
			first = append(first, job)
		}
	}
	return append(first, last...)
}

func indexChildren(object client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == "ImageListPullJob" {
		return []string{string(owner.UID)}
	}
	return nil
}

func setupLists(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1beta1.ImagePullJob{}, childrenOf,
		indexChildren); err != nil {
		return fmt.Errorf("indexing ImagePullJobs by list: %w", err)
	}

	options.Workers = listWorkers
	r := &ListReconciler{
		API:    options.API(mgr),
		Events: reconcile.NewRecorder(mgr.GetEventRecorder("imagelistpulljob-controller")),
	}
	return r.controller().Complete("imagelistpulljob", options.Options, ctrl.NewControllerManagedBy(mgr).
		For(&appsv1beta1.ImageListPullJob{}).
		Owns(&appsv1beta1.ImagePullJob{}))
}

func (r *ListReconciler) controller() *listController {
	return &listController{API: r.API, Events: r.Events, Pass: r.pass}
}

// pass makes one pass over a list.
func (r *ListReconciler) pass(ctx context.Context, s *listSession) (reconcile.Outcome, error) {
	list := s.Object
	var owned appsv1beta1.ImagePullJobList
	if err := r.Client.List(ctx, &owned, client.InNamespace(list.Namespace),
		client.MatchingFields{childrenOf: string(list.UID)}); err != nil {
		return reconcile.Outcome{}, fmt.Errorf("listing the jobs of the list: %w", err)
	}

	children := make([]*appsv1beta1.ImagePullJob, 0, len(owned.Items))
	for i := range owned.Items {
		children = append(children, &owned.Items[i])
	}

	children = reconcile.Overlay(r.Own, list.UID, children,
		func(job *appsv1beta1.ImagePullJob) bool {
			return slices.Contains(indexChildren(job), string(list.UID))
		})
	plan := imagepull.PlanList(list, children, s.Begun)
	if err := applyList(ctx, s, plan); err != nil {
		return reconcile.Outcome{}, err
	}

	return reconcile.Outcome{After: plan.After}, nil
}

func applyList(ctx context.Context, s *listSession, plan *imagepull.ListPlan) error {
	if len(plan.Create) == 0 {
		*s.Kept = nil
	}
	if plan.DeleteAll {
		return s.Delete(ctx, s.Object, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}

	if plan.Relabel {
		labels := map[string]any{"labels": map[string]any{pub.ControllerRevisionHash: plan.Hash}}
		list, err := reconcile.Merge(ctx, s.Writer, s.Object, labels, nil, "")
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		s.Object = list
	}

	var errs []error
	for _, child := range plan.Delete {
		if err := s.Delete(ctx, child); err != nil {
			err = fmt.Errorf("deleting ImagePullJob %s: %w", child.Name, err)
			if errs = append(errs, err); !reconcile.IsStalePlan(err) {
				s.Event(corev1.EventTypeWarning, "FailedDelete", err.Error())
			}
			break
		}
		s.Event(corev1.EventTypeNormal, "SuccessfulDelete",
			fmt.Sprintf("deleted ImagePullJob %s for image %s", child.Name, child.Spec.Image))
	}

	if len(errs) == 0 {
		errs = append(errs, createJobs(ctx, s, plan.Create))
	}
	if plan.Status == nil {
		return errors.Join(errs...)
	}

	status := plan.Status
	document := map[string]any{
		"startTime":           status.StartTime,
		"completionTime":      status.CompletionTime,
		"desired":             status.Desired,
		"active":              status.Active,
		"completed":           status.Completed,
		"succeeded":           status.Succeeded,
		"failedImageStatuses": nil,
	}
	if len(status.FailedImageStatuses) > 0 {
		document["failedImageStatuses"] = status.FailedImageStatuses
	}

	if _, err := reconcile.Merge(ctx, s.Writer, s.Object, nil, map[string]any{"status": document},
		"status"); client.IgnoreNotFound(err) != nil {
		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// createJobs creates jobs in growing batches, so that an error that concerns all of them occurs once. If the
// answer to a successful creation was lost, the next plan finds both jobs and deletes the younger one.
func createJobs(ctx context.Context, s *listSession, jobs []*appsv1beta1.ImagePullJob) error {
	jobs = s.Kept.refusedLast(jobs)
	for batch := 1; len(jobs) > 0; batch *= 2 {
		n := min(batch, len(jobs))
		errs := s.Each(ctx, n, func(i int) error {
			err := s.CreateTyped(ctx, jobs[i])
			if err != nil {
				err = fmt.Errorf("creating the ImagePullJob for image %s: %w", jobs[i].Spec.Image, err)
			}

			switch {
			case reconcile.IsNamespaceTerminating(err):
				return nil
			case err != nil:
				s.Event(corev1.EventTypeWarning, "FailedCreate", err.Error())
				return err
			}

			s.Event(corev1.EventTypeNormal, "SuccessfulCreate",
				fmt.Sprintf("created ImagePullJob %s for image %s", jobs[i].Name, jobs[i].Spec.Image))
			return nil
		})

		for i, err := range errs {
			s.Kept.took(jobs[i].Spec.Image, err, s.Now())
		}

		if err := errors.Join(errs...); err != nil {
			return err
		}

		jobs = jobs[n:]
	}

	return nil
}
