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

// Watch is an Index that follows the cluster, with the Matcher, the Scope and the Booker of it, on every
// replica.
type Watch struct {
	Index   *Index
	Scope   *Scope
	Booker  *Booker
	matcher *Matcher
	spreads *matchconditions.Follower[*appsv1beta1.WorkloadSpread]
	follow  func(*appsv1beta1.WorkloadSpread)
	gone    []func(*appsv1beta1.WorkloadSpread)
	// live reads WorkloadSpreads from the API server, together by namespace.
	live     client.Reader
	together matchconditions.Together[string, struct{}]
}

// Targets are workloads that can be followed.
type Targets interface {
	Workloads
	// Follow fills the caches with the kind of a target, so that what controls a pod, and its replicas, need
	// not be read live.
	Follow(ctx context.Context, target workloadspread.Reference) error
}

// NewWatch returns what follows WorkloadSpreads, from Follow on.
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

// Learn reads the WorkloadSpreads of a namespace from the API server: one that was admitted a moment ago may
// not have reached the cache of this replica. Pods that come together share a reading.
func (w *Watch) Learn(ctx context.Context, namespace string) error {
	_, err := w.together.Do(ctx, namespace, func(ctx context.Context) (none struct{}, err error) {
		var list appsv1beta1.WorkloadSpreadList
		if err := w.live.List(ctx, &list, client.InNamespace(namespace)); err != nil &&
			!meta.IsNoMatchError(err) &&
			!apierrors.IsNotFound(err) {
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

// Absent says that the kind is not served: pods need not wait for WorkloadSpreads to be known. Follow is
// called when it is.
func (w *Watch) Absent() { w.spreads.Absent() }

func newWatch(
	index *Index, booker *Booker, matcher *Matcher, follow func(*appsv1beta1.WorkloadSpread),
) *Watch {
	w := &Watch{Index: index, Scope: NewScope(index, time.Now), Booker: booker, matcher: matcher,
		follow: follow}
	w.spreads = matchconditions.NewFollower(
		func(spread *appsv1beta1.WorkloadSpread) {
			if before := index.Get(client.ObjectKeyFromObject(spread)); before == nil ||
				before.UID != spread.UID ||
				before.Generation != spread.Generation {
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

// FollowListed follows the kinds of targets that users list, as far as that is not done: WorkloadSpreads may
// be known before the list is.
func (w *Watch) FollowListed() {
	for _, spread := range w.Index.custom() {
		w.follow(spread)
	}
}

// WhenGone has do called with each WorkloadSpread that is deleted. It is called before the manager starts.
func (w *Watch) WhenGone(do func(*appsv1beta1.WorkloadSpread)) { w.gone = append(w.gone, do) }

// Changed has a value when the scope may have changed.
func (w *Watch) Changed() <-chan struct{} { return w.spreads.Changed() }

// Synced tells whether all WorkloadSpreads are known that there were at the start.
func (w *Watch) Synced() bool { return w.spreads.Synced() }

// Match is Matcher.Match, once all WorkloadSpreads are known: a pod that came before would do without.
func (w *Watch) Match(
	ctx context.Context, pod *corev1.Pod, namespace string,
) (*appsv1beta1.WorkloadSpread, error) {
	if err := w.spreads.Wait(ctx); err != nil {
		return nil, fmt.Errorf("WorkloadSpreads: %w", err)
	}
	return w.matcher.Match(ctx, pod, namespace)
}
