package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// snapshot is what was read about a node, including what the plan reads of its pods on the way.
type snapshot struct {
	podprobemarker.Snapshot
	owner  types.UID
	memory *memory
	failed error
}

func (r *NodeReconciler) snapshot(ctx context.Context, name string, owner types.UID) (*snapshot, error) {
	s := &snapshot{
		owner:  owner,
		memory: r.memory.Of(owner),
		Snapshot: podprobemarker.Snapshot{
			Name:       name,
			Now:        r.Now(),
			Serverless: r.Serverless,
			Liveness:   r.Liveness,
			Whole:      slim.Whole,
		},
	}
	node, list := &corev1.Node{}, &appsv1alpha1.NodePodProbe{}
	list.Name = name
	key := types.NamespacedName{Name: name}
	there := map[client.Object]bool{}

	for _, object := range []client.Object{node, list} {
		switch err := r.Client.Get(ctx, key, object, client.UnsafeDisableDeepCopy); {
		case err == nil:
			there[object] = true
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading %T %s: %w", object, name, err)
		}
	}

	if newest, exists := reconcile.Newest(r.Own, owner, list, there[list]); exists {
		s.List = newest
	}

	if !there[node] && s.List != nil {
		// The cache of nodes may be behind that of NodePodProbes: only the API server knows that the node
		// does not exist.
		switch err := r.Live.Get(ctx, key, node); {
		case err == nil:
			there[node] = true
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading the node: %w", err)
		}
	}

	if there[node] {
		s.Node = node
	}

	pods, err := r.Pods.OnNode(name)
	if err != nil {
		return nil, err
	}

	s.Pods = reconcile.Overlay(r.Own, owner, pods,
		func(pod *corev1.Pod) bool { return pod.Spec.NodeName == name })
	s.remember()
	read := map[string][]podprobemarker.Marker{}
	s.Markers = func(namespace string) []podprobemarker.Marker {
		if found, ok := read[namespace]; ok {
			return found
		}
		all, err := r.markers(ctx, namespace)
		if err != nil {
			s.failed = err
		}
		read[namespace], _ = podprobemarker.Markers(all, r.parse)
		return read[namespace]
	}
	s.Ports = func(pod *corev1.Pod, container, port string) (int32, bool) {
		return r.port(ctx, s, pod, container, port)
	}
	s.Replaced = func(pod *corev1.Pod, container string, since time.Time) bool {
		return r.replaced(ctx, s, pod, container, since)
	}

	return s, nil
}

// remember keeps what is known of existing pods and drops the rest.
func (s *snapshot) remember() {
	kept := make(map[types.UID]*known, len(s.Pods))
	for _, pod := range s.Pods {
		if kept[pod.UID] = s.memory.pods[pod.UID]; kept[pod.UID] == nil {
			kept[pod.UID] = &known{}
		}
	}
	s.memory.pods = kept
}

// markers returns the PodProbeMarkers of a namespace.
func (r *NodeReconciler) markers(
	ctx context.Context, namespace string,
) ([]*appsv1alpha1.PodProbeMarker, error) {
	var list appsv1alpha1.PodProbeMarkerList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing PodProbeMarkers: %w", err)
	}
	all := make([]*appsv1alpha1.PodProbeMarker, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// parse returns the selector of a PodProbeMarker, parsed once for each generation: all of a namespace are needed for
// each event of one of its pods, and the events of other pods wait for that.
func (r *NodeReconciler) parse(marker *appsv1alpha1.PodProbeMarker) (labels.Selector, error) {
	return r.selectors.Of(marker, "selector", marker.Spec.Selector)
}

// whole reads a pod from the API server; it returns nil if the pod is gone.
func (r *NodeReconciler) whole(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	found := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(pod), found); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if found.UID != pod.UID {
		return nil, nil
	}
	return found, nil
}

// read reads a pod for the plan, and remembers what the plan asks of it. If that fails or the pod is gone, it sets
// failed, and the plan, which is incomplete then, is not carried out: nothing more is read for it.
func (s *snapshot) read(ctx context.Context, r *NodeReconciler, pod *corev1.Pod) (read bool) {
	if s.failed != nil {
		return false
	}

	found, err := r.whole(ctx, pod)
	switch {
	case err != nil:
		s.failed = err
		return false
	case found == nil: // its deletion event will follow
		s.failed = reconcile.ErrStalePlan
		return false
	}

	of := s.memory.pods[pod.UID]
	of.ports, of.running, of.containers = ports(found), running(found), pod.Status.Message
	return true
}

// ports returns the numbers of the named ports of a pod.
func ports(pod *corev1.Pod) map[[2]string]int32 {
	found := map[[2]string]int32{}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, port := range containers[i].Ports {
				if number, ok := podprobemarker.Port(pod, containers[i].Name, port.Name); ok && port.Name != "" {
					found[[2]string{containers[i].Name, port.Name}] = number
				}
			}
		}
	}
	return found
}

// running returns since when the containers of a pod run; nil is for those that do not.
func running(pod *corev1.Pod) map[string]*corev1.ContainerStateRunning {
	found := map[string]*corev1.ContainerStateRunning{}
	for _, statuses := range [][]corev1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses,
	} {
		for i := range statuses {
			found[statuses[i].Name] = statuses[i].State.Running
		}
	}
	return found
}

// port returns the number of a named port. Ports of a pod never change, so they are read once.
func (r *NodeReconciler) port(
	ctx context.Context, s *snapshot, pod *corev1.Pod, container, name string,
) (int32, bool) {
	of := s.memory.pods[pod.UID]
	if of.ports == nil && !s.read(ctx, r, pod) {
		return 0, false
	}
	number, found := of.ports[[2]string{container, name}]
	return number, found
}

// replaced reports whether a container started after that time. The caches keep a checksum of the containers of a
// pod, in the message of its status: a pod is read when that has changed, and not for each probe, of which it may
// have as many as users like.
func (r *NodeReconciler) replaced(
	ctx context.Context, s *snapshot, pod *corev1.Pod, container string, since time.Time,
) bool {
	of := s.memory.pods[pod.UID]
	now := of.running
	if slim.Whole(pod) {
		now = running(pod)
	} else if now == nil || of.containers != pod.Status.Message {
		if !s.read(ctx, r, pod) {
			return false
		}
		now = of.running
	}

	state, known := now[container]
	return known && (state == nil || state.StartedAt.After(since))
}
