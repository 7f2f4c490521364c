package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Index holds the WorkloadSpreads by namespace, with their parsed targets and filters. The zero value is
// empty. It is safe for concurrent use. Its objects must not be changed.
type Index struct {
	mu         sync.RWMutex
	namespaces map[string][]*indexed
	filters    reconcile.Selectors
}

type indexed struct {
	spread *appsv1beta1.WorkloadSpread
	target workloadspread.Reference
	// filter selects nothing if it cannot be parsed.
	filter labels.Selector
}

// Set adds or replaces a WorkloadSpread.
func (x *Index) Set(spread *appsv1beta1.WorkloadSpread) {
	e := &indexed{spread: spread, target: workloadspread.TargetOf(spread), filter: labels.Nothing()}
	if filter, err := filterOf(&x.filters, spread); err == nil {
		e.filter = filter
	}

	x.mu.Lock()
	defer x.mu.Unlock()
	if x.namespaces == nil {
		x.namespaces = map[string][]*indexed{}
	}
	list := slices.DeleteFunc(slices.Clone(x.namespaces[spread.Namespace]),
		func(o *indexed) bool { return o.spread.Name == spread.Name })
	list = append(list, e)
	slices.SortFunc(list, func(a, b *indexed) int { return cmp.Compare(a.spread.Name, b.spread.Name) })
	x.namespaces[spread.Namespace] = list // others may still read the old slice
}

// Delete drops a WorkloadSpread.
func (x *Index) Delete(spread *appsv1beta1.WorkloadSpread) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(x.namespaces[spread.Namespace]),
		func(o *indexed) bool { return o.spread.Name == spread.Name })
	if len(list) == 0 {
		delete(x.namespaces, spread.Namespace)
		return
	}
	x.namespaces[spread.Namespace] = list
}

// Get returns a WorkloadSpread, or nil if there is none.
func (x *Index) Get(key types.NamespacedName) *appsv1beta1.WorkloadSpread {
	for _, e := range x.in(key.Namespace) {
		if e.spread.Name == key.Name {
			return e.spread
		}
	}
	return nil
}

// custom returns the WorkloadSpreads whose target is of a kind that users list.
func (x *Index) custom() []*appsv1beta1.WorkloadSpread {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var found []*appsv1beta1.WorkloadSpread
	for _, list := range x.namespaces {
		for _, e := range list {
			if !workloadspread.BuiltIn(e.target.GroupKind) {
				found = append(found, e.spread)
			}
		}
	}
	return found
}

func (x *Index) in(namespace string) []*indexed {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.namespaces[namespace]
}

// maxOwners limits how far up a chain of controllers is followed. No workload comes near it, but a cycle of
// references must not be followed forever.
const maxOwners = 10

// Matcher finds the WorkloadSpread of a pod.
type Matcher struct {
	index     *Index
	workloads Workloads
	log       logr.Logger
}

// NewMatcher returns a Matcher for the WorkloadSpreads of the index.
func NewMatcher(index *Index, workloads Workloads, log logr.Logger) *Matcher {
	return &Matcher{index, workloads, log}
}

// Match returns the WorkloadSpread of a new pod, or nil if it has none. It reads the controllers above the
// pod's own only if one of them may be a target (WS-055), and fails if one of these is not found (WS-053).
func (m *Matcher) Match(
	ctx context.Context, pod *corev1.Pod, namespace string,
) (*appsv1beta1.WorkloadSpread, error) {
	candidates := m.index.in(namespace)
	if len(candidates) == 0 || !readiness.Active(pod) {
		return nil, nil
	}

	owner, ok := workloadspread.ControllerOf(pod)
	for range maxOwners {
		if !ok {
			return nil, nil
		}
		if err := m.wait(ctx, owner.GroupKind, candidates); err != nil {
			return nil, err
		}
		if !m.workloads.Known(owner.GroupKind) {
			return nil, nil
		}

		for _, e := range candidates {
			if e.spread.DeletionTimestamp == nil && e.target == owner &&
				e.filter.Matches(labels.Set(pod.Labels)) {
				return e.spread, nil
			}
		}

		above := func(e *indexed) bool {
			return e.spread.DeletionTimestamp == nil && mayControl(e.target.GroupKind, owner.GroupKind) &&
				e.filter.Matches(labels.Set(pod.Labels))
		}
		if !slices.ContainsFunc(candidates, above) {
			return nil, nil
		}

		parent, found, err := m.workloads.Parent(ctx, namespace, owner)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%s %s, which controls the pod, is not found: %w", owner.Kind,
				owner.Name, err)
		}
		if err != nil { // these WorkloadSpreads are left out, since it is unknown whether they apply
			m.log.Error(err,
				"The controller of a workload cannot be read, its pods are not spread by what controls it",
				"namespace", namespace, "kind", owner.Kind, "name", owner.Name)
			return nil, nil
		}
		owner, ok = parent, found
	}

	return nil, nil
}

// wait blocks until it is known whether a kind is listed, if that may put a pod into a subset. Otherwise a
// pod that comes earlier would not be spread.
func (m *Matcher) wait(ctx context.Context, kind schema.GroupKind, candidates []*indexed) error {
	custom := func(e *indexed) bool { return !workloadspread.BuiltIn(e.target.GroupKind) }
	if workloadspread.BuiltIn(kind) || !slices.ContainsFunc(candidates, custom) || m.workloads.Ready() ||
		toolscache.WaitForCacheSync(ctx.Done(), m.workloads.Ready) {
		return nil
	}
	return fmt.Errorf("this manager has just started and does not know yet which kinds are listed: %w",
		ctx.Err())
}

// mayControl reports whether an object of kind above may control one of kind below. Supported kinds control
// pods, except Deployments, which control ReplicaSets. Nothing is known of other kinds.
func mayControl(above, below schema.GroupKind) bool {
	return !workloadspread.BuiltIn(above) || !workloadspread.BuiltIn(below) ||
		slices.Contains(workloadkind.Of(above).Children, below)
}
