package podapply

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// PreDownload deletes and creates jobs and, once all of them exist, labels the update revision; left is the
// version of it that this pass wrote, nil if it wrote none (CS-201, CS-206, CS-207). Jobs are not tracked as
// own writes: it does not matter if a job to be created exists already, or one to be deleted is gone.
func (a *Application) PreDownload(ctx context.Context, left *appsv1.ControllerRevision) error {
	errs := a.Each(ctx, len(a.plan.EndedPulls), func(i int) error {
		job := a.plan.EndedPulls[i]
		if err := a.deletePullJob(ctx, job); err != nil && !apierrors.IsNotFound(err) &&
			!apierrors.IsConflict(err) {
			return fmt.Errorf("deleting image pull job %s: %w", job.Name, err)
		}
		return nil
	})
	errs = append(errs, a.Each(ctx, len(a.plan.Pulls), func(i int) error {
		job := a.plan.Pulls[i]
		switch err := a.Client.Create(ctx, &unstructured.Unstructured{Object: job.Document}); {
		case apierrors.IsAlreadyExists(err):
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return reconcile.ErrStalePlan
		case err != nil:
			return fmt.Errorf("creating image pull job %s: %w", job.Name, err)
		default:
			a.Say("CreatedImagePullJob", "created image pull job %s: %s for container %s",
				job.Name, job.Image, job.Container)
		}
		return nil
	})...)
	if err := errors.Join(errs...); err != nil || len(a.plan.RevisionLabels) == 0 {
		return err
	}
	if left == nil {
		left = a.plan.MarkedRevision
	}
	if _, err := reconcile.Merge(ctx, a.Writer, left, map[string]any{
		"labels": a.plan.RevisionLabels,
	}, nil, ""); err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("labelling revision %s: %w", left.Name, err))
	}
	return nil
}

// marksOf returns a patch that removes the pre-download labels that the revision has.
func marksOf(r *appsv1.ControllerRevision) map[string]any {
	labels := map[string]any{}
	for _, key := range []string{pub.PreDownloadCreated, pub.PreDownloadIgnored} {
		if _, ok := r.Labels[key]; ok {
			labels[key] = nil
		}
	}
	return labels
}

// deletePullJob deletes a job in whatever version, because its status changes all the time.
func (a *Application) deletePullJob(ctx context.Context, job *metav1.PartialObjectMetadata) error {
	uid := job.UID
	deleted := NewPullJob()
	deleted.Namespace, deleted.Name = job.Namespace, job.Name
	return a.Client.Delete(ctx, deleted, client.Preconditions{UID: &uid})
}

// NewPullJob returns empty metadata of an ImagePullJob.
func NewPullJob() *metav1.PartialObjectMetadata {
	job := &metav1.PartialObjectMetadata{}
	job.SetGroupVersionKind(podplan.PullJobKind)
	return job
}
