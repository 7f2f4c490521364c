package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
)

// Limits of the reads from the API server when pods are created: readingTime is how long a pod waits,
// readAtOnce how many objects this process reads at the same time, readOfNamespace how many of them are of one
// namespace. Pods of one workload that are created together share a read.
const (
	readingTime     = 2 * time.Second
	readAtOnce      = 16
	readOfNamespace = 4
)

// Watch follows PersistentPodStates on every replica, for the admission of new pods.
type Watch struct {
	*matchconditions.Follower[*appsv1beta1.PersistentPodState]
	index index
	now   func() time.Time
	log   logr.Logger
	// live reads from the API server.
	live client.Reader
	// kinds returns the kinds that an administrator lists; it is valid once listsRead returns true.
	kinds     func() workloadspread.AllowList
	listsRead func() bool

	reads    matchconditions.Together[types.NamespacedName, *appsv1beta1.PersistentPodState]
	turns    *framework.Turns
	memory   matchconditions.Memory[matchconditions.Controlled]
	deadline time.Duration
}

// NewWatch returns a Watch, which follows PersistentPodStates once Follow is called; kinds returns the kinds
// that an administrator lists, and is valid once ready returns true.
func NewWatch(mgr manager.Manager, kinds func() workloadspread.AllowList, ready func() bool) *Watch {
	return newWatch(mgr.GetAPIReader(), kinds, ready, mgr.GetLogger().WithName("persistentpodstate"),
		time.Now)
}

func newWatch(
	live client.Reader, kinds func() workloadspread.AllowList, ready func() bool, log logr.Logger,
	now func() time.Time,
) *Watch {
	w := &Watch{
		live:      live,
		kinds:     kinds,
		listsRead: ready,
		log:       log,
		now:       now,
		turns:     framework.NewTurnsOf(readOfNamespace, readAtOnce),
		deadline:  readingTime,
	}
	w.reads.Limit = readingTime
	w.Follower = matchconditions.NewFollower(live, matchconditions.Kind[*appsv1beta1.PersistentPodState]{
		Object:     &appsv1beta1.PersistentPodState{},
		List:       &appsv1beta1.PersistentPodStateList{},
		ReadWithin: readingTime,
		Set:        w.index.set,
		Delete:     w.index.remove,
	})

	return w
}

// Creations returns the match condition for the pods that the API server must send to the webhook, or "false"
// if there are none.
func (w *Watch) Creations() string {
	return matchconditions.Creations(w.memory.Recall(w.index.asked, w.now()))
}

// Asks returns the match condition for the pods of one PersistentPodState.
func Asks(state *appsv1beta1.PersistentPodState) string {
	return matchconditions.Creations([]matchconditions.Controlled{
		askedBy(target{state.Namespace, persistentpodstate.TargetOf(state)}),
	})
}

func askedBy(by target) matchconditions.Controlled {
	kind := by.of.Kind
	if !matchconditions.Harmless(kind) {
		kind = ""
	}
	return matchconditions.Controlled{Namespace: by.namespace, Kind: kind}
}

// Of returns the PersistentPodState of a new pod, or nil if there is none. It is read from the API server,
// because the cache of this replica may not show yet what another replica has recorded. If that fails, the
// cached object is used if it has an entry of the pod; if it has none but has required labels, which the pod
// might miss, an error is returned (PPS-030, PPS-038, PPS-039).
func (w *Watch) Of(
	ctx context.Context, pod *corev1.Pod, namespace string,
) (*appsv1beta1.PersistentPodState, error) {
	owner, ok := workloadspread.ControllerOf(pod)
	if _, numbered := persistentpodstate.Ordinal(pod.Name); !ok || !numbered {
		return nil, nil
	}
	if err := w.Wait(ctx); err != nil {
		return nil, err
	}

	states := w.index.referring(namespace, owner)
	if persistentpodstate.Of(owner, states) == nil {
		return nil, nil
	}

	if !persistentpodstate.BuiltIn(owner.GroupKind) {
		if !w.listsRead() && !toolscache.WaitForCacheSync(ctx.Done(), w.listsRead) {
			return nil,
				fmt.Errorf("this manager has just started and does not know yet which kinds are listed: %w",
					ctx.Err())
		}
		if _, listed := w.kinds().Workload(owner.GroupKind); !listed {
			return nil, nil
		}
	}

	for cached := persistentpodstate.Of(owner, states); cached != nil; cached =
		persistentpodstate.Of(owner, states) {
		state, err := w.read(ctx, client.ObjectKeyFromObject(cached))
		_, recorded := cached.Status.PodStates[pod.Name]

		switch {
		case err == nil &&
			(state == nil || state.DeletionTimestamp != nil || persistentpodstate.TargetOf(state) != owner):
			// It is gone, and another one may have taken its place.
			states = slices.DeleteFunc(slices.Clone(states),
				func(one *appsv1beta1.PersistentPodState) bool { return one == cached })
		case err == nil:
			return state, nil
		case recorded:
			return cached, nil
		case cached.Spec.RequiredPersistentTopology != nil:
			return nil, fmt.Errorf("PersistentPodState %s could not be read: %w", cached.Name, err)
		default:
			w.log.Error(err, "What is remembered of a pod could not be read, it may start anywhere",
				"namespace", namespace, "pod", pod.Name)
			return nil, nil
		}
	}

	return nil, nil
}

// read reads a PersistentPodState from the API server, or returns nil if it does not exist.
func (w *Watch) read(
	ctx context.Context, name types.NamespacedName,
) (*appsv1beta1.PersistentPodState, error) {
	ctx, cancel := context.WithTimeout(ctx, w.deadline)
	defer cancel()
	return w.reads.Do(ctx, name, func(ctx context.Context) (*appsv1beta1.PersistentPodState, error) {
		over, came := w.turns.Wait(ctx, name.Namespace)
		if !came {
			return nil, fmt.Errorf("many pods are being created: %w", ctx.Err())
		}
		defer over()

		state := &appsv1beta1.PersistentPodState{}
		err := w.live.Get(ctx, name, state)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return state, err
	})
}

// index holds PersistentPodStates by their targets. Its objects must not be changed.
type index struct {
	mu      sync.RWMutex
	targets map[target][]*appsv1beta1.PersistentPodState
	names   map[types.NamespacedName]target
}

type target struct {
	namespace string
	of        persistentpodstate.Reference
}

func (x *index) set(state *appsv1beta1.PersistentPodState) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(state)
	if x.targets == nil {
		x.targets, x.names = map[target][]*appsv1beta1.PersistentPodState{}, map[types.NamespacedName]target{}
	}
	at := target{state.Namespace, persistentpodstate.TargetOf(state)}
	x.targets[at] = append(slices.Clone(x.targets[at]), state) // others may still read the former list
	x.names[client.ObjectKeyFromObject(state)] = at
}

func (x *index) remove(state *appsv1beta1.PersistentPodState) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(state)
}

func (x *index) drop(state *appsv1beta1.PersistentPodState) {
	name := client.ObjectKeyFromObject(state)
	at, known := x.names[name]
	if !known {
		return
	}
	delete(x.names, name)
	x.targets[at] = slices.DeleteFunc(slices.Clone(x.targets[at]),
		func(o *appsv1beta1.PersistentPodState) bool { return o.Name == state.Name })
	if len(x.targets[at]) == 0 {
		delete(x.targets, at)
	}
}

func (x *index) referring(
	namespace string, to persistentpodstate.Reference,
) []*appsv1beta1.PersistentPodState {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.targets[target{namespace, to}]
}

// asked returns the match conditions for all targets.
func (x *index) asked() map[string]matchconditions.Controlled {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := map[string]matchconditions.Controlled{}
	for at := range x.targets {
		of := askedBy(at)
		all[of.Namespace+"/"+of.Kind] = of
	}
	return all
}
