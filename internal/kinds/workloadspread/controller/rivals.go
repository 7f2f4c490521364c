package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// withoutRivals returns the pods that are not annotated for another existing WorkloadSpread that may have
// them, and the number of the others. Two WorkloadSpreads that adopt or rank each other's pods would do so
// forever. Validation rejects two of the same target, but not if they are created at the same time, or if one
// target controls the other.
func (p *Pass) withoutRivals(
	ctx context.Context, spread *appsv1beta1.WorkloadSpread, pods []*corev1.Pod,
) ([]*corev1.Pod, int, error) {
	rivals := map[string]*appsv1beta1.WorkloadSpread{}
	kept := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		placed, ok := pub.ParsePlacement(pod.Annotations)
		if !ok || placed.Name == spread.Name {
			kept = append(kept, pod)
			continue
		}
		rival, asked := rivals[placed.Name]
		if !asked {
			var err error
			if rival, err = reconcile.Find[*appsv1beta1.WorkloadSpread](ctx, p.Applier.API,
				types.NamespacedName{Namespace: spread.Namespace, Name: placed.Name}); err != nil {
				return nil, 0, fmt.Errorf("reading WorkloadSpread %s, which pods are annotated for: %w",
					placed.Name, err)
			}
			rivals[placed.Name] = rival
		}
		if !Claims(&p.filters, rival, pod) {
			kept = append(kept, pod)
		}
	}

	return kept, len(pods) - len(kept), nil
}

// Claims reports whether the pod may belong to a WorkloadSpread, which may be nil. filters keeps its parsed filter.
func Claims(filters *reconcile.Selectors, spread *appsv1beta1.WorkloadSpread, pod *corev1.Pod) bool {
	if spread == nil || spread.DeletionTimestamp != nil {
		return false
	}
	if filter, err := filterOf(filters, spread); err != nil || !filter.Matches(labels.Set(pod.Labels)) {
		return false
	}
	target := workloadspread.TargetOf(spread)
	if controller, ok := workloadspread.ControllerOf(pod); ok {
		return mayLead(target, controller)
	}
	return !workloadspread.BuiltIn(target.GroupKind) // pods of custom kinds may be found by a selector
}

// filterOf returns the parsed targetFilter.
func filterOf(filters *reconcile.Selectors, spread *appsv1beta1.WorkloadSpread) (labels.Selector, error) {
	return filters.Of(spread, "targetFilter", workloadspread.Filter(spread))
}
