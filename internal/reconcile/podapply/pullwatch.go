package podapply

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// PullJobs gives several controllers access to the metadata of ImagePullJobs in the caches.
type PullJobs struct {
	cache   cache.Cache
	mapper  meta.RESTMapper
	current func(context.Context) error
	index   *reconcile.Index
}

// NewPullJobs returns the ImagePullJobs of a manager's cache. current is that of [reconcile.LateKind].
func NewPullJobs(c cache.Cache, mapper meta.RESTMapper, current func(context.Context) error) *PullJobs {
	return &PullJobs{cache: c, mapper: mapper, current: current,
		index: &reconcile.Index{Object: NewPullJob(), Field: OwnerIndex, Of: IndexByController}}
}

// Watch returns a source that watches jobs as soon as their kind is served, and a function that reports
// whether jobs are known. Nothing waits for that: plans include no jobs until the cache holds them, whether
// the CustomResourceDefinition or the permission to list is missing, or the cache is not filled yet (CS-200).
// toOwner maps events to owners. wake lists the workloads that are between two revisions. They get a pass
// once the jobs are known, since otherwise nothing might trigger one for a long time.
func (p *PullJobs) Watch(
	toOwner handler.EventHandler, wake func(ctx context.Context) ([]ctrl.Request, error),
) (watch source.Source, known func() bool) {
	filled := &atomic.Bool{}
	return &reconcile.LateKind{
		Cache:   p.cache,
		Mapper:  p.mapper,
		Kind:    podplan.PullJobKind,
		Name:    podplan.PullJobKind.Kind,
		Object:  NewPullJob(),
		Indexes: []*reconcile.Index{p.index},
		Handler: toOwner,
		Current: p.current,
		Served:  func() { filled.Store(true) },
		Waiting: wake,
		Without: "Images are not pulled ahead",
	}, filled.Load
}
