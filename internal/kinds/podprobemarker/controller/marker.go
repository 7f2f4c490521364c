package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
}

type (
	markerController = reconcile.Controller[*appsv1alpha1.PodProbeMarker, struct{}]
	markerSession    = reconcile.Session[*appsv1alpha1.PodProbeMarker, struct{}]
)

func (r *MarkerReconciler) controller() *markerController {
	return &markerController{API: r.API, Events: r.Events, Pass: r.pass, AtMost: 10 * time.Second}
}

func (r *MarkerReconciler) pass(ctx context.Context, s *markerSession) (done reconcile.Outcome, err error) {
	if s.Object.DeletionTimestamp != nil {
		return done, r.leave(ctx, s)
	}
	if !slices.Contains(s.Object.Finalizers, pub.ProbeCleanup) {
		if err := finalize(ctx, s, append(slices.Clone(s.Object.Finalizers), pub.ProbeCleanup)); err != nil {
			return done, err
		}
	}

	pods, err := r.Nodes.Pods.InNamespace(s.Name.Namespace)
	if err != nil {
		return done, err
	}

	exists := map[string]bool{}
	marker := s.Object
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
	if err := r.warn(ctx, s); err != nil {
		return done, err
	}

	done.Planning = r.Now().Sub(s.Begun)
	onlyNumbers := status.ObservedGeneration == marker.Status.ObservedGeneration
	done.After, err = s.WriteStatus(ctx, &marker.Status, &status, onlyNumbers)
	reconcile.MinRequeue(&done.After, s.Again())

	return done, err
}

// warn records an event about a PodProbeMarker that is beyond the limit of its namespace.
func (r *MarkerReconciler) warn(ctx context.Context, s *markerSession) error {
	all, err := r.Nodes.markers(ctx, s.Name.Namespace)
	if err != nil {
		return err
	}

	about, first := "", 0
	for _, other := range all {
		if other.DeletionTimestamp == nil && other.Name < s.Name.Name {
			first++
		}
	}

	if first >= podprobemarker.MostMarkers {
		about = fmt.Sprintf(
			"of a namespace the first %d PodProbeMarkers by name are carried out, and this is none of them",
			podprobemarker.MostMarkers,
		)
	}

	s.Once(corev1.EventTypeWarning, podprobemarker.TooManyMarkers, about)
	return nil
}

// leave removes the finalizer of a PodProbeMarker once no node has its probes. Passes over the nodes remove
// the probes and then trigger this pass.
func (r *MarkerReconciler) leave(ctx context.Context, s *markerSession) error {
	if !slices.Contains(s.Object.Finalizers, pub.ProbeCleanup) {
		return nil
	}

	key := s.Name.Namespace + "/" + s.Name.Name
	if len(r.Nodes.nodesTold(key)) > 0 {
		return nil
	}

	var lists appsv1alpha1.NodePodProbeList
	if err := r.Client.List(ctx, &lists, client.MatchingFields{byMarker: key},
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodePodProbes with its probes: %w", err)
	}

	if len(lists.Items) > 0 {
		return nil
	}

	return finalize(ctx, s, slices.DeleteFunc(slices.Clone(s.Object.Finalizers),
		func(f string) bool { return f == pub.ProbeCleanup }))
}

// finalize writes the finalizers of a PodProbeMarker.
func finalize(ctx context.Context, s *markerSession, finalizers []string) error {
	patched, err := reconcile.Merge(ctx, s.Writer, s.Object, map[string]any{"finalizers": finalizers}, nil, "")
	if err != nil {
		return reconcile.StaleIfNotFound(fmt.Errorf("writing finalizers: %w", err))
	}
	s.Object = patched
	return nil
}
