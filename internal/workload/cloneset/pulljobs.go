package cloneset

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// servedEvery is how often it is looked up whether the kind is served.
const servedEvery = 30 * time.Second

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
		if err := w.cache.IndexField(ctx, podapply.NewPullJob(), ownerIndex, indexByController); err != nil {
			logger.Error(err, "Images are not pulled ahead: indexing fails")
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return // the manager ends
	}
	events := source.Kind[client.Object](w.cache, podapply.NewPullJob(), w.toOwner)
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
