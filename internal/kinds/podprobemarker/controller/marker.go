package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// byMarker indexes NodePodProbes by the PodProbeMarkers that have probes in them, as namespace/name.
const byMarker = "podprobemarker.markers"

func indexMarkers(object client.Object) (markers []string) {
	if list, ok := object.(*appsv1alpha1.NodePodProbe); ok {
		for marker := range podprobemarker.Listed(list.Spec.PodProbes) {
			markers = append(markers, marker)
		}
	}
	return markers
}

// split splits the namespace/name of [podprobemarker.Listed].
func split(marker string) (namespace, name string) {
	namespace, name, _ = strings.Cut(marker, "/")
	return namespace, name
}

// MarkerReconciler counts the pods of PodProbeMarkers, and removes their finalizer once no node has their
// probes. Its fields are exported for tests.
type MarkerReconciler struct {
	*reconcile.API
	Events reconcile.Recorder
	Nodes  *NodeReconciler

	memory reconcile.Memory[markerMemory]
}

type markerMemory struct {
	pace reconcile.StatusThrottle
	news reconcile.News
}

func (r *MarkerReconciler) forget(_ types.NamespacedName, owner types.UID) {
	r.Own.Forget(owner)
	r.memory.Forget(owner)
}

func (r *MarkerReconciler) pass(
	ctx context.Context, name types.NamespacedName, owner types.UID,
) (reconcile.Outcome, error) {
	if owner == "" {
		return reconcile.Outcome{}, nil
	}

	begin := r.Now()
	marker, err := reconcile.Begin[*appsv1alpha1.PodProbeMarker](ctx, r.API, name, owner)
	if err != nil || marker == nil {
		return reconcile.Outcome{}, err
	}
	if marker.DeletionTimestamp != nil {
		return r.leave(ctx, marker)
	}

	done := reconcile.Outcome{}
	if !slices.Contains(marker.Finalizers, pub.ProbeCleanup) {
		if marker, err = r.finalizers(ctx, marker,
			append(slices.Clone(marker.Finalizers), pub.ProbeCleanup)); err != nil {
			return done.Retry(err)
		}
	}

	pods, err := r.Nodes.Pods.InNamespace(name.Namespace)
	if err != nil {
		return done, err
	}

	exists := map[string]bool{}
	status := marker.Status
	status.ObservedGeneration = marker.Generation
	status.MatchedPods = podprobemarker.Matches(marker, pods, func(node string) bool {
		there, known := exists[node]
		if !known {
			there = r.Client.Get(ctx, types.NamespacedName{Name: node}, &corev1.Node{},
				client.UnsafeDisableDeepCopy) == nil
			exists[node] = there
		}
		return there
	})
	memory := r.memory.Of(owner)
	if err := r.warn(ctx, memory, marker); err != nil {
		return done, err
	}

	done.Planning = r.Now().Sub(begin)
	onlyNumbers := status.ObservedGeneration == marker.Status.ObservedGeneration
	done.After, err = memory.pace.Write(ctx, r.For(owner), marker, &marker.Status, &status, onlyNumbers)
	reconcile.MinRequeue(&done.After, r.Own.Again(owner))

	return done.Retry(err)
}

// warn records an event about a PodProbeMarker that is beyond the limit of its namespace.
func (r *MarkerReconciler) warn(
	ctx context.Context, memory *markerMemory, marker *appsv1alpha1.PodProbeMarker,
) error {
	all, err := r.Nodes.markers(ctx, marker.Namespace)
	if err != nil {
		return err
	}

	about, first := "", 0
	for _, other := range all {
		if other.DeletionTimestamp == nil && other.Name < marker.Name {
			first++
		}
	}

	if first >= podprobemarker.MostMarkers {
		about = fmt.Sprintf(
			"of a namespace the first %d PodProbeMarkers by name are carried out, and this is none of them",
			podprobemarker.MostMarkers,
		)
	}

	if memory.news.Is(podprobemarker.TooManyMarkers, about) {
		r.Events.Event(marker, corev1.EventTypeWarning, podprobemarker.TooManyMarkers, about)
	}

	return nil
}

// leave removes the finalizer of a PodProbeMarker once no node has its probes. Passes over the nodes remove
// the probes and then trigger this pass.
func (r *MarkerReconciler) leave(
	ctx context.Context, marker *appsv1alpha1.PodProbeMarker,
) (done reconcile.Outcome, err error) {
	if !slices.Contains(marker.Finalizers, pub.ProbeCleanup) {
		return done, nil
	}

	key := marker.Namespace + "/" + marker.Name
	if len(r.Nodes.nodesTold(key)) > 0 {
		return done, nil
	}

	var lists appsv1alpha1.NodePodProbeList
	if err := r.Client.List(ctx, &lists, client.MatchingFields{byMarker: key},
		client.UnsafeDisableDeepCopy); err != nil {
		return done, fmt.Errorf("listing NodePodProbes with its probes: %w", err)
	}

	if len(lists.Items) > 0 {
		return done, nil
	}

	_, err = r.finalizers(ctx, marker, slices.DeleteFunc(slices.Clone(marker.Finalizers),
		func(f string) bool { return f == pub.ProbeCleanup }))
	return done.Retry(err)
}

func (r *MarkerReconciler) finalizers(
	ctx context.Context, marker *appsv1alpha1.PodProbeMarker, finalizers []string,
) (*appsv1alpha1.PodProbeMarker, error) {
	patched, err := reconcile.Merge(ctx, r.For(marker.UID), marker, map[string]any{"finalizers": finalizers},
		nil, "")
	if err != nil {
		return nil, reconcile.StaleIfNotFound(fmt.Errorf("writing finalizers: %w", err))
	}
	return patched, nil
}
