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
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// Index holds the WorkloadSpreads by namespace, with what is read from them for each pod. The zero value is
// empty. It may be used by many at once. Its objects must not be changed.
type Index struct {
	mu         sync.RWMutex
	namespaces map[string][]*indexed
}

type indexed struct {
	spread *appsv1beta1.WorkloadSpread
	target workloadspread.Reference
	// filter selects nothing if it cannot be read.
	filter labels.Selector
}

// Set adds or replaces a WorkloadSpread.
func (x *Index) Set(spread *appsv1beta1.WorkloadSpread) {
	e := &indexed{spread: spread, target: workloadspread.TargetOf(spread), filter: labels.Nothing()}
	if filter, err := workloadspread.Filter(spread); err == nil {
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
	x.namespaces[spread.Namespace] = list // others may read the former one
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

// Get returns a WorkloadSpread; nil if there is none.
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

// maxOwners is how far up a chain of controllers is followed. No workload comes near; a ring of references
// must not be endless.
const maxOwners = 10

// Matcher finds the WorkloadSpread of a pod.
type Matcher struct {
	index     *Index
	workloads Workloads
	log       logr.Logger
}

// NewMatcher returns a Matcher of what the index holds.
func NewMatcher(index *Index, workloads Workloads, log logr.Logger) *Matcher {
	return &Matcher{index, workloads, log}
}

// Match returns the WorkloadSpread of a pod that is created; nil if it has none. The controllers above that
// of the pod are looked at only where one of them may be a target (WS-055); it is an error that one is not
// found (WS-053).
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
		if err != nil { // it cannot be told: these WorkloadSpreads are left out
			m.log.Error(
				err,
				"The controller of a workload cannot be read, its pods are not spread by what controls it",
				"namespace",
				namespace, "kind", owner.Kind, "name", owner.Name)
			return nil, nil
		}
		owner, ok = parent, found
	}

	return nil, nil
}

// wait returns when it is known whether a kind is listed, if that may put a pod into a subset: one that came
// before would do without.
func (m *Matcher) wait(ctx context.Context, kind schema.GroupKind, candidates []*indexed) error {
	custom := func(e *indexed) bool { return !workloadspread.BuiltIn(e.target.GroupKind) }
	if workloadspread.BuiltIn(kind) || !slices.ContainsFunc(candidates, custom) || m.workloads.Ready() ||
		toolscache.WaitForCacheSync(ctx.Done(), m.workloads.Ready) {
		return nil
	}
	return fmt.Errorf("this manager has just started and does not know yet which kinds are listed: %w",
		ctx.Err())
}

// mayControl tells whether an object of the one kind may stand above an object of the other. The supported
// kinds control pods, but for Deployments, which control ReplicaSets; of others nothing is known.
func mayControl(above, below schema.GroupKind) bool {
	switch {
	case above == workloadspread.Deployment:
		return below == workloadspread.ReplicaSet || !workloadspread.BuiltIn(below)
	case workloadspread.BuiltIn(above):
		return !workloadspread.BuiltIn(below)
	}
	return true
}
