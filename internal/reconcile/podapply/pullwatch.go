package podapply

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// servedEvery is the interval between checks whether the kind is served.
const servedEvery = 30 * time.Second

// PullJobs gives several controllers access to the metadata of ImagePullJobs in the caches.
type PullJobs struct {
	cache  cache.Cache
	mapper meta.RESTMapper

	mu      sync.Mutex
	indexed bool
}

// NewPullJobs returns the ImagePullJobs of a manager's cache.
func NewPullJobs(c cache.Cache, mapper meta.RESTMapper) *PullJobs {
	return &PullJobs{cache: c, mapper: mapper}
}

// index adds the index by controller, once for all controllers.
func (p *PullJobs) index(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.indexed {
		return nil
	}
	if err := p.cache.IndexField(ctx, NewPullJob(), OwnerIndex, IndexByController); err != nil {
		return err
	}
	p.indexed = true
	return nil
}

// PullWatch starts to watch the metadata of jobs as soon as their kind is served. Nothing waits for it: plans
// include no jobs until the cache holds them, be it that the CustomResourceDefinition is missing, the
// permission to list, or that the cache is not yet filled (CS-200).
type PullWatch struct {
	*PullJobs
	toOwner handler.EventHandler
	wake    func(ctx context.Context) ([]ctrl.Request, error)
	synced  atomic.Bool
}

// Watch returns a watch that maps events to owners with toOwner. wake lists the workloads that are between
// two revisions. They get a pass once the jobs are known, since otherwise nothing might trigger one for a
// long time.
func (p *PullJobs) Watch(
	toOwner handler.EventHandler, wake func(ctx context.Context) ([]ctrl.Request, error),
) *PullWatch {
	return &PullWatch{PullJobs: p, toOwner: toOwner, wake: wake}
}

// Served reports whether jobs are known.
func (w *PullWatch) Served() bool { return w.synced.Load() }

// Start implements source.Func. It returns at once, so that the controller does not wait for a kind that may
// never be served.
func (w *PullWatch) Start(
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request],
) error {
	go w.run(ctx, queue)
	return nil
}

func (w *PullWatch) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	logger := log.FromContext(ctx).WithValues("kind", podplan.PullJobKind.Kind)
	err := wait.PollUntilContextCancel(ctx, servedEvery, true, func(ctx context.Context) (bool, error) {
		if _, err := w.mapper.RESTMapping(
			podplan.PullJobKind.GroupKind(), podplan.PullJobKind.Version,
		); err != nil {
			logger.V(4).Info("Images are not pulled ahead", "why", err.Error())
			return false, nil
		}
		if err := w.index(ctx); err != nil {
			logger.Error(err, "Images are not pulled ahead: indexing fails")
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return // the manager is stopping
	}

	events := source.Kind[client.Object](w.cache, NewPullJob(), w.toOwner)
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
	requests, err := w.wake(ctx)
	if err != nil {
		logger.Error(err, "Listing the workloads for which images may be pulled ahead")
	}
	for _, request := range requests {
		queue.Add(request)
	}
}
