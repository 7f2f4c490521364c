package pod

import (
	"context"
	"fmt"

	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
)

// Travelling returns the step that has pods take along the probes of the PodProbeMarkers that select them,
// for providers of nodes without our daemon (PPM-110). Where PodProbeMarkers cannot be read, the pod is
// created without, and who creates it is warned.
func Travelling(cached client.Reader) Step {
	return Step{Name: "probes", Apply: func(ctx context.Context, request *Request) ([]operations.Operation, error) {
		var list appsv1alpha1.PodProbeMarkerList
		if err := cached.List(ctx, &list, client.InNamespace(request.Namespace),
			client.UnsafeDisableDeepCopy); err != nil {
			if !meta.IsNoMatchError(err) {
				request.Warn("the pod takes no probes along, since PodProbeMarkers could not be read: " +
					err.Error())
			}
			return nil, nil
		}
		all := make([]*appsv1alpha1.PodProbeMarker, len(list.Items))
		for i := range list.Items {
			all[i] = &list.Items[i]
		}
		probes, names := podprobemarker.Travelling(request.Pod, all)
		if probes == "" {
			return nil, nil
		}
		return annotate(request.Pod, map[string]any{pub.PodProbes: probes, pub.PodProbeMarkers: names}), nil
	},
	}
}

// Liveness returns the step that moves the liveness probes of pods that ask for it into an annotation
// (PPM-120), from where the manager has the node daemon carry them out (PPM-121).
func Liveness() Step {
	return simple("liveness", func(pod *corev1.Pod) ([]operations.Operation, error) {
		context, moved := podprobemarker.Moved(pod)
		if len(moved) == 0 {
			return nil, nil
		}
		changes := annotate(pod, map[string]any{pub.LivenessProbes: context})
		for _, i := range moved {
			changes = append(changes,
				operations.NewOperation("remove", fmt.Sprintf("/spec/containers/%d/livenessProbe", i), nil))
		}
		return changes, nil
	})
}
