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

// servedEvery is how often it is looked up whether the kind is served.
const servedEvery = 30 * time.Second

// PullJobs are the metadata of ImagePullJobs in the caches, which several controllers look at.
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

// index adds the index by controller, once for all.
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

// PullWatch begins to watch the metadata of jobs as soon as their kind is served. Nothing waits for it: until
// the cache holds the jobs no plan knows of any, whether the CustomResourceDefinition is missing, the right
// to list, or time (CS-200).
type PullWatch struct {
	*PullJobs
	toOwner handler.EventHandler
	wake    func(ctx context.Context) ([]ctrl.Request, error)
	synced  atomic.Bool
}

// Watch returns a watch whose events lead to owners by toOwner. wake lists the workloads that are between two
// revisions, which get a pass when the jobs are known: nothing else might call for one for a long time.
func (p *PullJobs) Watch(toOwner handler.EventHandler, wake func(ctx context.Context) ([]ctrl.Request, error)) *PullWatch {
	return &PullWatch{PullJobs: p, toOwner: toOwner, wake: wake}
}

// Served tells whether jobs can be known.
func (w *PullWatch) Served() bool { return w.synced.Load() }

// Start is a source.Func. It returns at once, so that the controller does not wait for a kind that nobody may
// ever serve.
func (w *PullWatch) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
	go w.run(ctx, queue)
	return nil
}

func (w *PullWatch) run(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	logger := log.FromContext(ctx).WithValues("kind", podplan.PullJobKind.Kind)
	err := wait.PollUntilContextCancel(ctx, servedEvery, true, func(ctx context.Context) (bool, error) {
		if _, err := w.mapper.RESTMapping(podplan.PullJobKind.GroupKind(), podplan.PullJobKind.Version); err != nil {
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
		return // the manager ends
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
