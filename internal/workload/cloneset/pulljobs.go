package cloneset

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/afloat-project/afloat/internal/engine/podplan"

	appsv1 "k8s.io/api/apps/v1"

	corev1 "k8s.io/api/core/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/parallel"
	"github.com/afloat-project/afloat/internal/reconcile"
)

const (
	// pullRetryAfter is how long a set's jobs are left alone after they could not be written; the rollout goes on meanwhile (CS-201).
	pullRetryAfter = 30 * time.Second
	// servedEvery is how often it is looked up whether the kind is served.
	servedEvery = 30 * time.Second
)

// preDownload ends and creates jobs, and when all exist, labels the update revision, from the version that left if this pass wrote it
// (CS-201, CS-206, CS-207). Jobs are no own writes to be waited for: a name that is taken, or free already, is what was wanted.
func (a *application) preDownload(ctx context.Context, left *appsv1.ControllerRevision) error {
	errs := parallel.Do(ctx, len(a.plan.EndedPulls), a.Parallel, func(i int) error {
		job := a.plan.EndedPulls[i]
		if err := a.deletePullJob(ctx, job); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting image pull job %s: %w", job.Name, err)
		}
		return nil
	})
	errs = append(errs, parallel.Do(ctx, len(a.plan.Pulls), a.Parallel, func(i int) error {
		job := a.plan.Pulls[i]
		switch err := a.Client.Create(ctx, &unstructured.Unstructured{Object: job.Document}); {
		case apierrors.IsAlreadyExists(err):
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return reconcile.ErrChanged
		case err != nil:
			return fmt.Errorf("creating image pull job %s: %w", job.Name, err)
		default:
			a.say("CreatedImagePullJob", "created image pull job %s: %s for container %s", job.Name, job.Image, job.Container)
		}
		return nil
	})...)
	if err := errors.Join(errs...); err != nil || len(a.plan.RevisionLabels) == 0 {
		return err
	}
	if left == nil {
		left = a.plan.MarkedRevision
	}
	body, err := reconcile.MergePatch(left, map[string]any{"labels": a.plan.RevisionLabels}, nil)
	if err != nil {
		return err
	}
	if _, err := reconcile.Patch(ctx, a.Writer, left, body, ""); err != nil {
		return reconcile.Gone(fmt.Errorf("labelling revision %s: %w", left.Name, err))
	}
	return nil
}

// marksOf returns the labels of CS-206 that the revision has, as a patch that removes them.
func marksOf(r *appsv1.ControllerRevision) map[string]any {
	labels := map[string]any{}
	for _, key := range []string{pub.PreDownloadCreated, pub.PreDownloadIgnored} {
		if _, ok := r.Labels[key]; ok {
			labels[key] = nil
		}
	}
	return labels
}

// pulled remembers what became of the plan's jobs: a failure is told once and tried again later, whatever else calls for a pass.
func (p *Pass) pulled(plan *Plan, result Result) {
	if result.PullError == nil {
		if len(plan.Pulls) > 0 {
			p.once(plan, corev1.EventTypeWarning, "FailedCreateImagePullJob", "")
		}
		return
	}
	p.once(plan, corev1.EventTypeWarning, "FailedCreateImagePullJob", result.PullError.Error())
	p.memory.Of(plan.Set.UID).pullsHeld = p.Kube.Now().Add(pullRetryAfter)
}

// deletePullJob deletes a job whatever its version: its status changes all the time.
func (a *application) deletePullJob(ctx context.Context, job *metav1.PartialObjectMetadata) error {
	uid := job.UID
	deleted := newPullJob()
	deleted.Namespace, deleted.Name = job.Namespace, job.Name
	return a.Client.Delete(ctx, deleted, client.Preconditions{UID: &uid})
}

// readPullJobs completes the snapshot with the jobs of the set, if they can be read.
func (k *Kube) readPullJobs(ctx context.Context, s *Snapshot, owned []client.ListOption) error {
	if s.PullJobsServed = k.pulls.served(); !s.PullJobsServed {
		return nil
	}
	var jobs metav1.PartialObjectMetadataList
	jobs.SetGroupVersionKind(podplan.PullJobKind)
	if err := k.Client.List(ctx, &jobs, owned...); err != nil {
		return fmt.Errorf("listing image pull jobs: %w", err)
	}
	for i := range jobs.Items {
		s.PullJobs = append(s.PullJobs, &jobs.Items[i])
	}
	return nil
}

func newPullJob() *metav1.PartialObjectMetadata {
	job := &metav1.PartialObjectMetadata{}
	job.SetGroupVersionKind(podplan.PullJobKind)
	return job
}

// pullWatch begins to watch the metadata of jobs as soon as their kind is served. Nothing waits for it: until the cache holds the jobs
// no plan knows of any, whether the CustomResourceDefinition is missing, the right to list, or time (CS-200).
type pullWatch struct {
	cache   cache.Cache
	mapper  meta.RESTMapper
	reader  client.Reader
	toOwner handler.EventHandler
	every   time.Duration
	synced  atomic.Bool
}

func newPullWatch(mgr ctrl.Manager, toOwner handler.EventHandler) *pullWatch {
	return &pullWatch{cache: mgr.GetCache(), mapper: mgr.GetRESTMapper(), reader: mgr.GetClient(), toOwner: toOwner, every: servedEvery}
}

func (w *pullWatch) served() bool { return w != nil && w.synced.Load() }

// start is a source.Func. It returns at once, so that the controller does not wait for a kind that nobody may ever serve.
func (w *pullWatch) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	go w.run(ctx, queue)
	return nil
}

func (w *pullWatch) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	logger := log.FromContext(ctx).WithValues("kind", podplan.PullJobKind.Kind)
	err := wait.PollUntilContextCancel(ctx, w.every, true, func(ctx context.Context) (bool, error) {
		if _, err := w.mapper.RESTMapping(podplan.PullJobKind.GroupKind(), podplan.PullJobKind.Version); err != nil {
			logger.V(4).Info("Images are not pulled ahead", "why", err.Error())
			return false, nil
		}
		if err := w.cache.IndexField(ctx, newPullJob(), ownerIndex, indexByController); err != nil {
			logger.Error(err, "Images are not pulled ahead: indexing fails")
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return // the manager ends
	}
	events := source.Kind[client.Object](w.cache, newPullJob(), w.toOwner)
	if err := events.Start(ctx, queue); err != nil {
		logger.Error(err, "Images are not pulled ahead: the watch does not start")
		return
	}
	if err := events.WaitForSync(ctx); err != nil {
		logger.Error(err, "Images are not pulled ahead: the cache does not come")
		return
	}
	if ctx.Err() != nil {
		return
	}
	w.synced.Store(true)
	w.wake(ctx, queue)
}

// wake calls for a pass over every set that is between two revisions; nothing else might for a long time.
func (w *pullWatch) wake(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	var sets appsv1beta1.CloneSetList
	if err := w.reader.List(ctx, &sets, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing CloneSets")
		return
	}
	for i := range sets.Items {
		if status := &sets.Items[i].Status; status.CurrentRevision != status.UpdateRevision {
			queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
		}
	}
}
