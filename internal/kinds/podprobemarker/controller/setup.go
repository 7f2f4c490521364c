package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// How long events of many pods are gathered into one pass. A pass over a PodProbeMarker only counts, so it
// may wait longer than one over a node.
const (
	gatherNode   = 100 * time.Millisecond
	gatherMarker = time.Second
)

// Options configure the controllers.
type Options struct {
	reconcile.Options // Workers is the number of workers for PodProbeMarkers.
	NodeWorkers       int
	// Serverless is the gate EnablePodProbeMarkerOnServerless, Liveness the gate EnhancedLivenessProbe.
	Serverless, Liveness bool
}

type queue = reconcile.Queue

// Setup adds the controllers to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, options Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &appsv1alpha1.NodePodProbe{}, byMarker,
		indexMarkers); err != nil {
		return fmt.Errorf("indexing NodePodProbes by PodProbeMarker: %w", err)
	}

	r := NewReconcilers(options.API(mgr), options,
		reconcile.NewRecorder(mgr.GetEventRecorder("podprobemarker-controller")))
	r.Nodes.API = options.API(mgr) // each reconciler keeps its own writes
	ofNodes := options.Options
	ofNodes.Workers = options.NodeWorkers
	err := ofNodes.Complete("nodepodprobe", r.NodeLoop(options.Limiter()), ctrl.NewControllerManagedBy(mgr).
		For(&appsv1alpha1.NodePodProbe{}).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{},
			builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&corev1.Pod{}, each(r.NodesOfPod)).
		Watches(&appsv1alpha1.PodProbeMarker{}, each(r.NodesOfMarker)))
	if err != nil {
		return err
	}

	return r.Markers.controller().Complete("podprobemarker", options.Options,
		ctrl.NewControllerManagedBy(mgr).
			For(&appsv1alpha1.PodProbeMarker{},
				builder.WithPredicates(predicate.Funcs{UpdateFunc: markerChanged})).
			Watches(&appsv1alpha1.NodePodProbe{}, each(MarkersOfList)).
			Watches(&corev1.Node{}, each(r.MarkersOfNode)).
			Watches(&corev1.Pod{}, each(r.MarkersOfPod)).
			WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
				r.Wake(func(namespace, name string) { q.Add(reconcile.Request(namespace, name)) })
				return nil
			})))
}

// Reconcilers are the reconcilers of both kinds.
type Reconcilers struct {
	Nodes   *NodeReconciler
	Markers *MarkerReconciler
}

// NewReconcilers returns the reconcilers, with one API for both.
func NewReconcilers(api *reconcile.API, options Options, events reconcile.Recorder) *Reconcilers {
	nodes := &NodeReconciler{
		API:        api,
		Events:     events,
		Pods:       options.Pods,
		Serverless: options.Serverless,
		Liveness:   options.Liveness,
		wake:       func(string, string) {},
	}
	return &Reconcilers{nodes, &MarkerReconciler{API: api, Events: events, Nodes: nodes}}
}

// Wake sets the function that requests passes over PodProbeMarkers.
func (r *Reconcilers) Wake(by func(namespace, name string)) {
	r.Nodes.mu.Lock()
	defer r.Nodes.mu.Unlock()
	r.Nodes.wake = by
}

// NodeLoop returns the reconciler of NodePodProbes.
func (r *Reconcilers) NodeLoop(limiter workqueue.TypedRateLimiter[ctrl.Request]) *reconcile.Loop {
	return reconcile.NewLoop(
		reconcile.Loop{Now: r.Nodes.Now, Owner: r.Nodes.owner, Pass: r.Nodes.pass, Forget: r.Nodes.forget},
		time.Second, limiter,
	)
}

// add requests a pass after a while.
type add func(request ctrl.Request, after time.Duration)

// each calls a function for each event, as [reconcile.Changes] does. All nodes and PodProbeMarkers are
// reconciled at the start anyway.
func each(of func(ctx context.Context, before, after client.Object, add add)) handler.EventHandler {
	return reconcile.Changes(false, func(ctx context.Context, q queue, before, after client.Object) {
		of(ctx, before, after, func(request ctrl.Request, wait time.Duration) { q.AddAfter(request, wait) })
	})
}

// nodeChanged filters out the regular status updates of nodes.
func nodeChanged(e event.UpdateEvent) bool {
	before, isNode := e.ObjectOld.(*corev1.Node)
	after, same := e.ObjectNew.(*corev1.Node)
	return isNode && same &&
		(before.UID != after.UID || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
			podprobemarker.Virtual(before) != podprobemarker.Virtual(after) ||
			isReady(before) != isReady(after))
}

func isReady(node *corev1.Node) bool {
	ready := nodes.Ready(node)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// markerChanged filters out changes of the status.
func markerChanged(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
		(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil) ||
		len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
}

// podOf returns the pod of an event, or nil if there is none.
func podOf(object client.Object) *corev1.Pod {
	pod, _ := object.(*corev1.Pod)
	return pod
}

// matters reports whether an event of a pod changes which pods are probed, or how.
func matters(before, after *corev1.Pod) bool {
	if before == nil || after == nil {
		return true
	}
	return before.UID != after.UID || podprobemarker.Ready(before) != podprobemarker.Ready(after) ||
		before.Spec.NodeName != after.Spec.NodeName || !maps.Equal(before.Labels, after.Labels)
}

// NodesOfPod requests a pass over the node of a pod.
func (r *Reconcilers) NodesOfPod(_ context.Context, old, new client.Object, add add) {
	before, after := podOf(old), podOf(new)
	asks := matters(before, after) || before.Status.PodIP != after.Status.PodIP ||
		r.Nodes.Serverless && conditionsChanged(before, after) || podprobemarker.Restarted(before, after)
	if !asks {
		return
	}
	for _, pod := range []*corev1.Pod{before, after} {
		if pod != nil && pod.Spec.NodeName != "" {
			add(reconcile.Request("", pod.Spec.NodeName), gatherNode)
		}
	}
}

// conditionsChanged reports whether the status of any condition of a pod has changed.
func conditionsChanged(before, after *corev1.Pod) bool {
	was := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for i := range before.Status.Conditions {
		was[before.Status.Conditions[i].Type] = before.Status.Conditions[i].Status
	}
	for i := range after.Status.Conditions {
		if was[after.Status.Conditions[i].Type] != after.Status.Conditions[i].Status {
			return true
		}
	}
	return len(before.Status.Conditions) != len(after.Status.Conditions)
}

// NodesOfMarker requests passes over the nodes that have probes of a PodProbeMarker, or should have some
// (PPM-051, PPM-054, PPM-057).
func (r *Reconcilers) NodesOfMarker(ctx context.Context, before, after client.Object, add add) {
	object := after
	if object == nil {
		object = before
	} else if before != nil && !markerChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		return
	}

	key := object.GetNamespace() + "/" + object.GetName()
	found := map[string]bool{}
	for _, node := range r.Nodes.nodesTold(key) {
		found[node] = true
	}

	var lists appsv1alpha1.NodePodProbeList
	if err := r.Nodes.Client.List(ctx, &lists, client.MatchingFields{byMarker: key},
		client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing NodePodProbes of a PodProbeMarker")
	}

	for i := range lists.Items {
		found[lists.Items[i].Name] = true
	}

	if marker, ok := after.(*appsv1alpha1.PodProbeMarker); ok {
		pods, err := r.Nodes.Pods.InNamespace(object.GetNamespace())
		if err != nil {
			log.FromContext(ctx).Error(err, "Listing pods of a PodProbeMarker")
		}
		for _, node := range podprobemarker.NodesOf(marker, pods) {
			found[node] = true
		}
	}

	for node := range found {
		add(reconcile.Request("", node), 0)
	}
}

// MarkersOfList requests passes over the PodProbeMarkers that no longer have probes in a list (PPM-057).
func MarkersOfList(_ context.Context, before, after client.Object, add add) {
	list, _ := before.(*appsv1alpha1.NodePodProbe)
	if list == nil {
		return
	}

	now := map[string]bool{}
	if newest, ok := after.(*appsv1alpha1.NodePodProbe); ok {
		now = podprobemarker.Listed(newest.Spec.PodProbes)
	}

	for marker := range podprobemarker.Listed(list.Spec.PodProbes) {
		if !now[marker] {
			add(reconcile.Request(split(marker)), 0)
		}
	}
}

// MarkersOfPod requests passes over the PodProbeMarkers that select or selected a pod, to update the number
// of their pods.
func (r *Reconcilers) MarkersOfPod(ctx context.Context, old, new client.Object, add add) {
	if before, after := podOf(old), podOf(new); matters(before, after) {
		r.selecting(ctx, add, before, after)
	}
}

// selecting requests passes over the PodProbeMarkers that select one of the pods. Pods of PodProbeMarkers
// beyond the limit are not counted again.
func (r *Reconcilers) selecting(ctx context.Context, add add, pods ...*corev1.Pod) {
	read := map[string][]podprobemarker.Marker{}
	for _, pod := range pods {
		if pod == nil || pod.Spec.NodeName == "" {
			continue
		}

		if _, known := read[pod.Namespace]; !known {
			all, err := r.Nodes.markers(ctx, pod.Namespace)
			if err != nil {
				log.FromContext(ctx).Error(err, "Listing PodProbeMarkers of a pod")
				return
			}
			read[pod.Namespace], _ = podprobemarker.Markers(all, r.Nodes.parse)
		}

		for _, marker := range read[pod.Namespace] {
			if marker.Selects(pod.Labels) {
				add(reconcile.Request(marker.Namespace, marker.Name), gatherMarker)
			}
		}
	}
}

// MarkersOfNode requests passes over the PodProbeMarkers that select pods of a node that was created or
// deleted (PPM-040).
func (r *Reconcilers) MarkersOfNode(ctx context.Context, before, after client.Object, add add) {
	if before != nil && after != nil {
		return
	}

	node := after
	if node == nil {
		node = before
	}

	pods, err := r.Nodes.Pods.OnNode(node.GetName())
	if err != nil {
		log.FromContext(ctx).Error(err, "Listing pods of a node")
	}
	r.selecting(ctx, add, pods...)
}
