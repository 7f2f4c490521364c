package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// nodes selects the NodeImages of a job, in the order in which they should pull.
func (r *JobReconciler) nodes(
	ctx context.Context, job *appsv1beta1.ImagePullJob,
) ([]*appsv1beta1.NodeImage, error) {
	var names []string
	switch {
	case job.Spec.PodSelector != nil:
		pods, err := r.pods(ctx, job)
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			names = append(names, pod.Spec.NodeName)
		}
	case job.Spec.Selector != nil && len(job.Spec.Selector.Names) > 0:
		names = job.Spec.Selector.Names
	default:
		return r.labelled(ctx, job.Spec.Selector)
	}

	var nodes []*appsv1beta1.NodeImage
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		node := &appsv1beta1.NodeImage{}
		if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node,
			client.UnsafeDisableDeepCopy); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, fmt.Errorf("reading NodeImage %s: %w", name, err)
		}
		if node.DeletionTimestamp == nil {
			nodes = append(nodes, node)
		}
	}

	return nodes, nil
}

func (r *JobReconciler) labelled(
	ctx context.Context, selector *appsv1beta1.ImagePullJobNodeSelector,
) ([]*appsv1beta1.NodeImage, error) {
	matching := labels.Everything()
	if selector != nil {
		var err error
		if matching, err = metav1.LabelSelectorAsSelector(&selector.LabelSelector); err != nil {
			return nil, fmt.Errorf("spec.selector: %w", err)
		}
	}

	var list appsv1beta1.NodeImageList
	if err := r.Client.List(ctx, &list, client.MatchingLabelsSelector{Selector: matching},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NodeImages: %w", err)
	}

	var nodes []*appsv1beta1.NodeImage
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			nodes = append(nodes, &list.Items[i])
		}
	}

	slices.SortFunc(nodes, func(a, b *appsv1beta1.NodeImage) int { return strings.Compare(a.Name, b.Name) })
	return nodes, nil
}

// pods returns the selected pods that have a node, in the order of their update.
func (r *JobReconciler) pods(ctx context.Context, job *appsv1beta1.ImagePullJob) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(&job.Spec.PodSelector.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.podSelector: %w", err)
	}

	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.InNamespace(job.Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}

	var pods []rollout.Candidate
	for i := range list.Items {
		if hasNode(&list.Items[i]) {
			pods = append(pods,
				rollout.Candidate{Pod: &list.Items[i], Ready: readiness.Ready(&list.Items[i])})
		}
	}

	slices.SortFunc(pods, func(a, b rollout.Candidate) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	if owner := metav1.GetControllerOf(job); owner != nil && owner.Kind == "CloneSet" &&
		strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
		set := &appsv1beta1.CloneSet{}
		if err := r.Client.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: owner.Name}, set,
			client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading CloneSet %s: %w", owner.Name, err)
		}
		rolling := set.Spec.UpdateStrategy.RollingUpdate
		if rolling == nil {
			rolling = &appsv1beta1.RollingUpdateCloneSetStrategy{}
		}
		pods = rollout.SortForUpdate(pods, pods, rolling.PriorityStrategy, rolling.ScatterStrategy)
	} else if owner != nil && owner.Kind == "SidecarSet" &&
		strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/") {
		set := &appsv1beta1.SidecarSet{}
		if err := r.Client.Get(ctx, types.NamespacedName{Name: owner.Name}, set,
			client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("reading SidecarSet %s: %w", owner.Name, err)
		}
		strategy := &set.Spec.UpdateStrategy
		pods = rollout.SortForSidecars(pods, pods, strategy.PriorityStrategy, strategy.ScatterStrategy)
	} else if owner != nil && owner.Kind == "StatefulSet" {
		slices.SortStableFunc(pods,
			func(a, b rollout.Candidate) int { return ordinal(b.Pod.Name) - ordinal(a.Pod.Name) })
	}

	ordered := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		ordered = append(ordered, pod.Pod)
	}

	return ordered, nil
}

// ordinal returns the number at the end of the name of a StatefulSet's pod, or -1 if there is none.
func ordinal(name string) int {
	n := 0
	digits := name[strings.LastIndex(name, "-")+1:]
	if _, err := fmt.Sscanf(digits, "%d", &n); err != nil {
		return -1
	}
	return n
}

func hasNode(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// notReadySince returns since when a node is not ready; ok is false if it is ready or unknown.
func (r *JobReconciler) notReadySince(ctx context.Context, name string) (time.Time, bool) {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node,
		client.UnsafeDisableDeepCopy); err != nil {
		return time.Time{}, false // nothing is known, or the NodeImage will be deleted too
	}
	if ready := nodes.Ready(node); ready != nil {
		return ready.LastTransitionTime.Time, ready.Status != corev1.ConditionTrue
	}
	return time.Time{}, false
}
