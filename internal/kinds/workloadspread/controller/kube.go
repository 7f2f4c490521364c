package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Followed reads workloads and reports their changes. Kinds implements it.
type Followed interface {
	Workloads
	// Follow starts to watch the kind of a target, and the kinds between it and its pods, unless they are
	// watched already.
	Follow(ctx context.Context, target workloadspread.Reference) error
	// Tell registers a function that is called with each workload that appears, goes, or changes in a field
	// that is read (WS-121).
	Tell(do func(namespace string, changed workloadspread.Reference))
}

var _ Followed = (*Kinds)(nil)

// Kube reads from the caches and writes to the API server.
type Kube struct {
	*reconcile.API
	// Pods finds pods in the caches.
	Pods *podindex.Index
	// Workloads reads targets.
	Workloads Followed
}

var _ Reader = &kubeReader{}

// kubeReader implements Reader for a Kube.
type kubeReader struct{ *Kube }

// Target implements Reader. It starts to watch the target's kind.
func (k *kubeReader) Target(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread,
) (*workloadspread.Target, bool, error) {
	reference := workloadspread.TargetOf(spread)
	if !workloadspread.BuiltIn(reference.GroupKind) && !k.Workloads.Ready() {
		return nil, false, errors.New("it is not known yet which kinds are listed")
	}
	// The pods of an unknown kind exist all the same, and so does the status that counts them.
	if !k.Workloads.Known(reference.GroupKind) {
		err := fmt.Errorf(
			"the kind is not supported, and an administrator has not listed it in key %s of ConfigMap %s in the namespace of the manager",
			workloadspread.AllowListKey, workloadspread.ConfigMapName)
		return &workloadspread.Target{Reference: reference, DesiredError: err}, false, nil
	}

	known := true
	if err := k.Workloads.Follow(ctx, reference); err != nil {
		if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return nil, false, fmt.Errorf("following %s: %w", reference.Kind, err)
		}
		known = false // the kind is not served
	}

	target, err := k.Workloads.Target(ctx, spread, false)
	if apierrors.IsForbidden(err) { // until somebody grants access, which is reported to the user
		return &workloadspread.Target{Reference: reference, DesiredError: err}, known, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the target: %w", err)
	}

	return target, known, nil
}

// Pods implements Reader.
func (k *kubeReader) Pods(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, target *workloadspread.Target,
) ([]*corev1.Pod, error) {
	pods, err := k.found(ctx, spread, target)
	there := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		there[pod.UID] = true
	}
	return reconcile.Overlay(k.Own, spread.UID, pods,
		func(pod *corev1.Pod) bool { return there[pod.UID] }), err
}

func (k *kubeReader) found(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, target *workloadspread.Target,
) ([]*corev1.Pod, error) {
	filter, err := metav1.LabelSelectorAsSelector(workloadspread.Filter(spread))
	if err != nil {
		return nil, fmt.Errorf("target filter: %w", err)
	}

	var found []*corev1.Pod
	for _, controller := range target.Controllers {
		pods, err := k.Kube.Pods.ControlledBy(spread.Namespace, controller)
		if err != nil {
			return nil, fmt.Errorf("finding the pods of %s %s: %w", target.Kind, target.Name, err)
		}
		found = append(found, selected(pods, spread.Namespace, target.Selector, filter)...)
	}

	if len(found) > 0 || target.Fallback == nil {
		return found, nil
	}
	selector, err := target.Fallback()
	if err != nil {
		return nil, fmt.Errorf("finding the pods of %s %s: %w", target.Kind, target.Name, err)
	}
	if selector == nil || selector.Empty() {
		return nil, nil
	}

	var list corev1.PodList
	if err := k.Client.List(ctx, &list, client.InNamespace(spread.Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the pods of %s %s: %w", target.Kind, target.Name, err)
	}

	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}

	return selected(pods, spread.Namespace, filter), nil
}

// selected returns the pods of a namespace that match all selectors. A nil selector matches everything.
func selected(pods []*corev1.Pod, namespace string, selectors ...labels.Selector) []*corev1.Pod {
	kept := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		if pod.Namespace == namespace && !slices.ContainsFunc(selectors, func(s labels.Selector) bool {
			return s != nil && !s.Matches(labels.Set(pod.Labels))
		}) {
			kept = append(kept, pod)
		}
	}
	return kept
}

// Node implements Reader.
func (k *kubeReader) Node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := k.Client.Get(ctx, types.NamespacedName{Name: name}, node,
		client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return node, nil
}

// Whole implements Reader.
func (k *kubeReader) Whole(ctx context.Context, name types.NamespacedName) ([]byte, error) {
	pod := &unstructured.Unstructured{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := k.Live.Get(ctx, name, pod); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading pod %s: %w", name, err)
	}

	pod.SetManagedFields(nil)
	document, err := json.Marshal(pod.Object)
	if err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", name, err)
	}

	return document, nil
}

// Placed implements Reader. It reads only the metadata of pods, of those that have not ended. A pod that the
// cache shows is no pod that comes yet: it is counted, or another one of the name.
func (k *kubeReader) Placed(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, overdue []workloadspread.LostBooking,
) (map[workloadspread.LostBooking]bool, error) {
	wanted, found := map[workloadspread.LostBooking]bool{}, map[workloadspread.LostBooking]bool{}
	for _, lost := range overdue {
		wanted[lost] = true
	}

	look := func(pod *metav1.PartialObjectMetadata) error {
		placed, ok := pub.ParsePlacement(pod.Annotations)
		of := workloadspread.LostBooking{Subset: placed.Subset, Pod: placed.UID}
		if !wanted[of] { // or renamed, since its deletion was booked (WS-103)
			of.Pod = pod.Name
		}
		if !ok || placed.Name != spread.Name || pod.DeletionTimestamp != nil || !wanted[of] {
			return nil
		}
		cached := &corev1.Pod{}
		err := k.Client.Get(ctx, client.ObjectKeyFromObject(pod), cached, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) || err == nil && cached.UID != pod.UID {
			found[of] = true
			return nil
		}
		return err
	}

	ongoing := client.ListOptions{Raw: &metav1.ListOptions{FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}}
	err := reconcile.EachMetadata(ctx, k.Live, corev1.SchemeGroupVersion.WithKind("Pod"), look, &ongoing, client.InNamespace(spread.Namespace))
	if err != nil {
		return nil, fmt.Errorf("looking for booked pods in namespace %s: %w", spread.Namespace, err)
	}
	return found, nil
}
