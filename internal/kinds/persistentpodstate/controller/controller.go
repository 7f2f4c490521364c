package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// +kubebuilder:rbac:groups=apps.kruise.io,resources=persistentpodstates,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.kruise.io,resources=persistentpodstates/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Options configure the controller.
type Options struct {
	reconcile.Options
	// Workloads reads the workloads.
	Workloads *Kinds
	// Cleanup is the gate PersistentPodStateAutoCleanup (PPS-105).
	Cleanup bool
}

// Indexes of PersistentPodStates, by their target and by the nodes of their entries.
const byTarget, byNode = "persistentpodstate-target", "persistentpodstate-node"

// pauseAtMost is the longest pause between two passes over a PersistentPodState.
const pauseAtMost = time.Second

// followAgain is how long to wait before a listed kind that could not be watched is tried again.
const followAgain = time.Minute

// Reconciler records where pods are ready. Its fields are exported for tests.
type Reconciler struct {
	*reconcile.API
	Events    reconcile.Recorder
	Pods      *podindex.Index
	Workloads Workloads
	Cleanup   bool
}

type (
	controller = reconcile.Controller[*appsv1beta1.PersistentPodState, struct{}]
	session    = reconcile.Session[*appsv1beta1.PersistentPodState, struct{}]
)

func (r *Reconciler) controller() *controller {
	return &controller{API: r.API, Events: r.Events, Pass: r.pass, AtMost: pauseAtMost}
}

// Setup adds the controllers to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := Indexed(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}

	events := reconcile.NewRecorder(mgr.GetEventRecorder("persistentpodstate-controller"))
	r := &Reconciler{
		API:       options.API(mgr),
		Events:    events,
		Pods:      options.Pods,
		Workloads: options.Workloads,
		Cleanup:   options.Cleanup,
	}
	g := &Generator{
		Reconciler: &Reconciler{
			API:       options.API(mgr),
			Events:    events,
			Pods:      options.Pods,
			Workloads: options.Workloads,
		},
	}
	g.Own = nil
	kind := func(kind schema.GroupKind, wanted asked) handler.EventHandler {
		return handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
				add(q, wanted(ctx, kind, nil, e.Object))
			},
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
				add(q, wanted(ctx, kind, e.ObjectOld, e.ObjectNew))
			},
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
				add(q, wanted(ctx, kind, e.Object, nil))
			},
		}
	}
	err := r.controller().Complete("persistentpodstate-controller", options.Options,
		ctrl.NewControllerManagedBy(mgr).
			For(&appsv1beta1.PersistentPodState{}).
			Watches(&corev1.Pod{}, &podEvents{r}).
			Watches(&corev1.Node{}, &nodeEvents{r}).
			Watches(&appsv1.StatefulSet{}, kind(workloadkind.StatefulSet, r.ofWorkload)).
			Watches(&appsv1beta1.StatefulSet{}, kind(workloadkind.AdvancedStatefulSet, r.ofWorkload)).
			WatchesRawSource(listed(options.Workloads, "recorder", r.ofWorkload, r.ofListed)))
	if err != nil {
		return err
	}

	return options.Complete("persistentpodstate-generator", g, ctrl.NewControllerManagedBy(mgr).
		Watches(&appsv1beta1.PersistentPodState{}, kind(schema.GroupKind{}, g.ofState)).
		Watches(&appsv1.StatefulSet{}, kind(workloadkind.StatefulSet, ofAsking)).
		Watches(&appsv1beta1.StatefulSet{}, kind(workloadkind.AdvancedStatefulSet, ofAsking)).
		WatchesRawSource(listed(options.Workloads, "generator", ofAsking,
			func(context.Context) []ctrl.Request { return nil })))
}

// asked returns the requests that a change of a workload triggers.
type asked func(ctx context.Context, kind schema.GroupKind, before, after client.Object) []ctrl.Request

// listed returns the source of objects of listed kinds; relisted returns the requests to add whenever the
// list was read.
func listed(
	kinds *Kinds, name string, wanted asked, relisted func(context.Context) []ctrl.Request,
) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		follow := func(ctx context.Context) {
			err := kinds.Follow(ctx, name, func(kind schema.GroupKind, before, after client.Object) {
				add(q, wanted(ctx, kind, before, after))
			})
			if err != nil {
				log.FromContext(ctx).Error(err, "A listed kind cannot be followed, it is tried again")
			}
		}
		kinds.WhenListed(func() {
			follow(ctx)
			add(q, relisted(ctx))
		})
		go wait.UntilWithContext(ctx, follow, followAgain)

		return nil
	})
}

type queue = reconcile.Queue

func add(q queue, requests []ctrl.Request) {
	for _, request := range requests {
		q.Add(request)
	}
}

// Indexed adds the indexes of PersistentPodStates that the controllers need.
func Indexed(ctx context.Context, by client.FieldIndexer) error {
	index := func(field string, values func(*appsv1beta1.PersistentPodState) []string) error {
		err := by.IndexField(ctx, &appsv1beta1.PersistentPodState{}, field,
			func(object client.Object) []string {
				state, ok := object.(*appsv1beta1.PersistentPodState)
				if !ok {
					return nil
				}
				return values(state)
			})
		if err != nil {
			return fmt.Errorf("indexing PersistentPodStates: %w", err)
		}
		return nil
	}
	return errors.Join(index(byTarget, func(state *appsv1beta1.PersistentPodState) []string {
		return []string{targetKey(persistentpodstate.TargetOf(state))}
	}), index(byNode, func(state *appsv1beta1.PersistentPodState) []string {
		nodes := map[string]bool{}
		for _, entry := range state.Status.PodStates {
			nodes[entry.NodeName] = true
		}
		return slices.Collect(maps.Keys(nodes))
	}))
}

func targetKey(of persistentpodstate.Reference) string { return of.String() + "/" + of.Name }

// referring returns the PersistentPodStates of a workload.
func (r *Reconciler) referring(
	ctx context.Context, namespace string, to persistentpodstate.Reference,
) ([]*appsv1beta1.PersistentPodState, error) {
	return r.list(ctx, client.InNamespace(namespace), client.MatchingFields{byTarget: targetKey(to)})
}

func (r *Reconciler) list(
	ctx context.Context, options ...client.ListOption,
) ([]*appsv1beta1.PersistentPodState, error) {
	var list appsv1beta1.PersistentPodStateList
	if err := r.Client.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing PersistentPodStates: %w", err)
	}
	states := make([]*appsv1beta1.PersistentPodState, len(list.Items))
	for i := range list.Items {
		states[i] = &list.Items[i]
	}
	return states, nil
}

// requests returns a request for each of the listed PersistentPodStates.
func requests(states []*appsv1beta1.PersistentPodState, err error) (all []ctrl.Request) {
	if err != nil {
		log.Log.Error(err, "Finding the PersistentPodStates that an event is about")
	}
	for _, state := range states {
		all = append(all, reconcile.Request(state.Namespace, state.Name))
	}
	return all
}

// ofWorkload requests a pass over the PersistentPodStates of a workload when it is created, deleted, or
// changed.
func (r *Reconciler) ofWorkload(
	ctx context.Context, kind schema.GroupKind, before, after client.Object,
) []ctrl.Request {
	one := after
	if one == nil {
		one = before
	}
	if one == nil || before != nil && after != nil && before.GetGeneration() == after.GetGeneration() &&
		before.GetUID() == after.GetUID() &&
		(before.GetDeletionTimestamp() == nil) == (after.GetDeletionTimestamp() == nil) {
		return nil
	}
	return requests(r.referring(ctx, one.GetNamespace(),
		persistentpodstate.Reference{GroupKind: kind, Name: one.GetName()}))
}

// ofListed requests a pass over the PersistentPodStates of custom kinds, which must be listed to be
// supported.
func (r *Reconciler) ofListed(ctx context.Context) []ctrl.Request {
	states, err := r.list(ctx)
	return requests(slices.DeleteFunc(states, func(state *appsv1beta1.PersistentPodState) bool {
		return persistentpodstate.BuiltIn(persistentpodstate.TargetOf(state).GroupKind)
	}), err)
}

// ofAsking requests a pass over a workload when its annotations that ask for a PersistentPodState change.
func ofAsking(_ context.Context, _ schema.GroupKind, before, after client.Object) []ctrl.Request {
	switch {
	case after == nil:
		return nil // the generated PersistentPodState is garbage-collected
	case before == nil && !persistentpodstate.Asks(after.GetAnnotations()):
		return nil // an existing PersistentPodState has its own request
	case before != nil && before.GetUID() == after.GetUID() &&
		persistentpodstate.SameAsked(before.GetAnnotations(), after.GetAnnotations()):
		return nil
	}
	return []ctrl.Request{reconcile.Request(after.GetNamespace(), after.GetName())}
}

// ofState requests passes over the workloads that a PersistentPodState may be generated for, or whose
// generation it may prevent.
func (g *Generator) ofState(
	_ context.Context, _ schema.GroupKind, before, after client.Object,
) (all []ctrl.Request) {
	old, _ := before.(*appsv1beta1.PersistentPodState)
	state, _ := after.(*appsv1beta1.PersistentPodState)
	if old != nil && state != nil && old.UID == state.UID && old.Generation == state.Generation &&
		(old.DeletionTimestamp == nil) == (state.DeletionTimestamp == nil) &&
		equality.Semantic.DeepEqual(old.OwnerReferences, state.OwnerReferences) &&
		maps.Equal(old.Annotations, state.Annotations) {
		return nil
	}

	if state == nil {
		state = old
	}
	if state == nil {
		return nil
	}

	all = append(all, reconcile.Request(state.Namespace, state.Name))
	if target := state.Spec.TargetRef.Name; target != state.Name && target != "" {
		all = append(all, reconcile.Request(state.Namespace, target))
	}

	return all
}

// podEvents maps events of pods to PersistentPodStates.
type podEvents struct{ r *Reconciler }

var _ handler.EventHandler = &podEvents{}

// Create implements handler.EventHandler. Pods of the initial list are ignored, because every
// PersistentPodState is reconciled at startup.
func (h *podEvents) Create(ctx context.Context, e event.CreateEvent, q queue) {
	if pod, ok := e.Object.(*corev1.Pod); ok && !e.IsInInitialList && readiness.Ready(pod) {
		h.enqueue(ctx, q, pod)
	}
}

// Delete implements handler.EventHandler.
func (h *podEvents) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	if pod, ok := e.Object.(*corev1.Pod); ok {
		h.enqueue(ctx, q, pod)
	}
}

// Generic implements handler.EventHandler.
func (h *podEvents) Generic(context.Context, event.GenericEvent, queue) {}

// Update implements handler.EventHandler.
func (h *podEvents) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	before, isPod := e.ObjectOld.(*corev1.Pod)
	after, same := e.ObjectNew.(*corev1.Pod)
	if !isPod || !same {
		return
	}

	owner, _ := workloadspread.ControllerOf(after)
	former, _ := workloadspread.ControllerOf(before)
	ready := readiness.Ready(after)
	if before.UID != after.UID || owner != former || readiness.Active(before) != readiness.Active(after) ||
		ready && !readiness.Ready(before) || ready &&
		(before.Spec.NodeName != after.Spec.NodeName || !maps.Equal(before.Annotations, after.Annotations)) {
		h.enqueue(ctx, q, after)
	}
}

// enqueue requests a pass over the PersistentPodStates of a pod: the one that has bound it, and those of its
// controller.
func (h *podEvents) enqueue(ctx context.Context, q queue, pod *corev1.Pod) {
	if name := pod.Annotations[pub.InjectedPersistentPodState]; name != "" {
		state, err := reconcile.Find[*appsv1beta1.PersistentPodState](ctx, h.r.API,
			types.NamespacedName{Namespace: pod.Namespace, Name: name})
		if err == nil && state != nil {
			q.Add(reconcile.Request(pod.Namespace, name))
		}
	}
	if owner, ok := workloadspread.ControllerOf(pod); ok {
		add(q, requests(h.r.referring(ctx, pod.Namespace, owner)))
	}
}

// nodeEvents maps events of nodes to the PersistentPodStates that remember them, when labels or the node
// itself appear or disappear.
type nodeEvents struct{ r *Reconciler }

var _ handler.EventHandler = &nodeEvents{}

// Create implements handler.EventHandler. A recreated node may have other labels.
func (h *nodeEvents) Create(ctx context.Context, e event.CreateEvent, q queue) {
	if !e.IsInInitialList {
		add(q, requests(h.r.list(ctx, client.MatchingFields{byNode: e.Object.GetName()})))
	}
}

// Delete implements handler.EventHandler.
func (h *nodeEvents) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	h.keptNoMore(ctx, q, e.Object.GetLabels(), nil)
}

// keptNoMore requests a pass over all PersistentPodStates with required labels that a node had and no longer
// has: it may have been the last node with them.
func (h *nodeEvents) keptNoMore(ctx context.Context, q queue, before, after map[string]string) {
	if !h.r.Cleanup {
		return
	}

	states, err := h.r.list(ctx)
	add(q, requests(slices.DeleteFunc(states, func(state *appsv1beta1.PersistentPodState) bool {
		for pod := range state.Status.PodStates {
			if must := persistentpodstate.Must(state, pod); persistentpodstate.Keeps(before, must) &&
				!persistentpodstate.Keeps(after, must) {
				return false
			}
		}
		return true
	}), err))
}

// Generic implements handler.EventHandler.
func (h *nodeEvents) Generic(context.Context, event.GenericEvent, queue) {}

// Update implements handler.EventHandler.
func (h *nodeEvents) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	before, after := e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()
	if maps.Equal(before, after) {
		return
	}

	h.keptNoMore(ctx, q, before, after)
	states, err := h.r.list(ctx, client.MatchingFields{byNode: e.ObjectNew.GetName()})
	add(q, requests(slices.DeleteFunc(states, func(state *appsv1beta1.PersistentPodState) bool {
		return !slices.ContainsFunc(persistentpodstate.Keys(state), func(key string) bool {
			old, had := before[key]
			now, has := after[key]
			return had != has || old != now
		})
	}), err))
}
