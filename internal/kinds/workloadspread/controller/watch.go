package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Watch follows the WorkloadSpreads of the cluster on every replica. It holds their Index, with its Matcher,
// Scope and Booker.
type Watch struct {
	*matchconditions.Follower[*appsv1beta1.WorkloadSpread]
	*Scope
	Index   *Index
	Booker  *Booker
	matcher *Matcher
	follow  func(*appsv1beta1.WorkloadSpread)
	gone    []func(*appsv1beta1.WorkloadSpread)
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
	return newWatch(mgr.GetAPIReader(), index,
		NewBooker(mgr.GetClient(), mgr.GetAPIReader(), index.Get, targets, log, time.Now),
		NewMatcher(index, targets, log),
		func(spread *appsv1beta1.WorkloadSpread) {
			if err := targets.Follow(ctx, workloadspread.TargetOf(spread)); err != nil {
				log.Error(err, "The kind of a target cannot be watched, it is read live", "workloadspread",
					client.ObjectKeyFromObject(spread))
			}
		})
}

func newWatch(
	live client.Reader, index *Index, booker *Booker, matcher *Matcher,
	follow func(*appsv1beta1.WorkloadSpread),
) *Watch {
	w := &Watch{Index: index, Scope: NewScope(index, time.Now), Booker: booker, matcher: matcher,
		follow: follow}
	w.Follower = matchconditions.NewFollower(live, matchconditions.Kind[*appsv1beta1.WorkloadSpread]{
		Object: &appsv1beta1.WorkloadSpread{},
		List:   &appsv1beta1.WorkloadSpreadList{},
		Set: func(spread *appsv1beta1.WorkloadSpread) {
			if before := index.Get(client.ObjectKeyFromObject(spread)); before == nil ||
				before.UID != spread.UID || before.Generation != spread.Generation {
				if before != nil && before.UID != spread.UID {
					booker.Forget(before.UID)
				}
				follow(spread)
			}
			index.Set(spread)
		},
		Delete: func(spread *appsv1beta1.WorkloadSpread) {
			index.Delete(spread)
			booker.Forget(spread.UID)
			for _, do := range w.gone {
				do(spread)
			}
		},
	})

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

// Match waits until all WorkloadSpreads are known, and calls Matcher.Match. Otherwise a pod that comes
// earlier would not be spread.
func (w *Watch) Match(
	ctx context.Context, pod *corev1.Pod, namespace string,
) (*appsv1beta1.WorkloadSpread, error) {
	if err := w.Wait(ctx); err != nil {
		return nil, err
	}
	return w.matcher.Match(ctx, pod, namespace)
}
