package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Watch follows the WorkloadSpreads of the cluster on every replica. It holds their Index, with its Matcher,
// Scope and Booker.
type Watch struct {
	Index   *Index
	Scope   *Scope
	Booker  *Booker
	matcher *Matcher
	spreads *matchconditions.Follower[*appsv1beta1.WorkloadSpread]
	follow  func(*appsv1beta1.WorkloadSpread)
	gone    []func(*appsv1beta1.WorkloadSpread)
	// live reads WorkloadSpreads from the API server, and together combines reads of the same namespace.
	live     client.Reader
	together matchconditions.Together[string, struct{}]
}

// Targets reads workloads whose kinds can be followed.
type Targets interface {
	Workloads
	// Follow fills the caches with the kind of a target, so that the controllers of pods and their replicas
	// need not be read live.
	Follow(ctx context.Context, target workloadspread.Reference) error
}

// NewWatch returns a Watch, which starts to follow WorkloadSpreads when Follow is called.
func NewWatch(ctx context.Context, mgr manager.Manager, targets Targets) *Watch {
	index, log := &Index{}, mgr.GetLogger().WithName("workloadspread")
	w := newWatch(index, NewBooker(mgr.GetClient(), mgr.GetAPIReader(), index.Get, targets, log, time.Now),
		NewMatcher(index, targets, log),
		func(spread *appsv1beta1.WorkloadSpread) {
			if err := targets.Follow(ctx, workloadspread.TargetOf(spread)); err != nil {
				log.Error(err, "The kind of a target cannot be watched, it is read live", "workloadspread",
					client.ObjectKeyFromObject(spread))
			}
		})

	w.live, w.together.Limit = mgr.GetAPIReader(), readingTime
	return w
}

// readingTime is how long a pod may wait for WorkloadSpreads to be read.
const readingTime = 5 * time.Second

// Learn reads the WorkloadSpreads of a namespace from the API server, since one that was just admitted may
// not be in the cache of this replica yet. Pods that come at the same time share one read.
func (w *Watch) Learn(ctx context.Context, namespace string) error {
	_, err := w.together.Do(ctx, namespace, func(ctx context.Context) (none struct{}, err error) {
		var list appsv1beta1.WorkloadSpreadList
		if err := w.live.List(ctx, &list, client.InNamespace(namespace)); err != nil &&
			!meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return none, fmt.Errorf("reading WorkloadSpreads: %w", err)
		}
		for i := range list.Items {
			w.spreads.Learn(&list.Items[i])
		}
		return none, nil
	})
	return err
}

// Follow starts to follow WorkloadSpreads once the manager runs.
func (w *Watch) Follow(ctx context.Context, mgr manager.Manager) error {
	return w.spreads.Follow(ctx, mgr, &appsv1beta1.WorkloadSpread{})
}

// Absent records that the kind is not served, so that pods do not wait for WorkloadSpreads. Follow is called
// once it is served.
func (w *Watch) Absent() { w.spreads.Absent() }

func newWatch(
	index *Index, booker *Booker, matcher *Matcher, follow func(*appsv1beta1.WorkloadSpread),
) *Watch {
	w := &Watch{Index: index, Scope: NewScope(index, time.Now), Booker: booker, matcher: matcher,
		follow: follow}
	w.spreads = matchconditions.NewFollower(
		func(spread *appsv1beta1.WorkloadSpread) {
			if before := index.Get(client.ObjectKeyFromObject(spread)); before == nil ||
				before.UID != spread.UID || before.Generation != spread.Generation {
				if before != nil && before.UID != spread.UID {
					booker.Forget(before.UID)
				}
				follow(spread)
			}
			index.Set(spread)
		},
		func(spread *appsv1beta1.WorkloadSpread) {
			index.Delete(spread)
			booker.Forget(spread.UID)
			for _, do := range w.gone {
				do(spread)
			}
		},
		func(old, spread *appsv1beta1.WorkloadSpread) bool { return old.Generation != spread.Generation })
	return w
}

// FollowListed follows the kinds of targets that users list. WorkloadSpreads may be known before the list is.
func (w *Watch) FollowListed() {
	for _, spread := range w.Index.custom() {
		w.follow(spread)
	}
}

// WhenGone registers a function that is called with each deleted WorkloadSpread. It must be called before the
// manager starts.
func (w *Watch) WhenGone(do func(*appsv1beta1.WorkloadSpread)) { w.gone = append(w.gone, do) }

// Changed returns a channel that has a value when the scope may have changed.
func (w *Watch) Changed() <-chan struct{} { return w.spreads.Changed() }

// Synced reports whether all WorkloadSpreads that existed at the start are known.
func (w *Watch) Synced() bool { return w.spreads.Synced() }

// Match waits until all WorkloadSpreads are known, and calls Matcher.Match. Otherwise a pod that comes
// earlier would not be spread.
func (w *Watch) Match(
	ctx context.Context, pod *corev1.Pod, namespace string,
) (*appsv1beta1.WorkloadSpread, error) {
	if err := w.spreads.Wait(ctx); err != nil {
		return nil, fmt.Errorf("WorkloadSpreads: %w", err)
	}
	return w.matcher.Match(ctx, pod, namespace)
}
