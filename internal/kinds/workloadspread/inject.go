package workloadspread

import (
	"bytes"
	"encoding/json"
	"fmt"

	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/jsondiff"
	"github.com/afloat-project/afloat/internal/engine/subset"
)

// Inject returns what a subset changes in a pod as operations of a JSON patch, so that fields that our
// libraries do not know stay as they are (WS-090 to WS-096). It does not change the subset, and the result
// shares no data with it (WS-097).
func Inject(
	raw []byte, s *appsv1beta1.WorkloadSpreadSubset, placement pub.Placement,
) ([]operations.Operation, error) {
	before, err := subset.Object(raw)
	if err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}

	pod := runtime.DeepCopyJSON(before)
	spec, err := subset.Child(pod, "spec")
	if err != nil {
		return nil, err
	}
	if err := subset.Append(spec, "tolerations", s.Tolerations); err != nil {
		return nil, err
	}
	if err := addAffinity(spec, s); err != nil {
		return nil, err
	}
	if pod, err = patched(pod, s.Patch.Raw); err != nil {
		return nil, fmt.Errorf("the patch of subset %q: %w", s.Name, err)
	}

	metadata, err := subset.Child(pod, "metadata")
	if err != nil {
		return nil, err
	}
	annotations, err := subset.Child(metadata, "annotations")
	if err != nil {
		return nil, err
	}

	annotations[pub.MatchedWorkloadSpread] = placement.String()
	if err := readable(pod); err != nil {
		return nil, fmt.Errorf("the patch of subset %q: %w", s.Name, err)
	}

	return jsondiff.Between(before, pod, jsondiff.Deep), nil
}

// addAffinity adds the node selectors of the subset, if it has any.
func addAffinity(spec map[string]any, s *appsv1beta1.WorkloadSpreadSubset) error {
	if len(s.PreferredNodeSelector) > 0 {
		affinity, err := subset.Child(spec, "affinity")
		if err != nil {
			return err
		}
		nodes, err := subset.Child(affinity, "nodeAffinity")
		if err != nil {
			return err
		}
		if err := subset.Append(nodes, "preferredDuringSchedulingIgnoredDuringExecution",
			s.PreferredNodeSelector); err != nil {
			return err
		}
	}

	if err := subset.Require(spec, s.RequiredNodeSelector); err != nil {
		return fmt.Errorf("requiredNodeSelector of subset %q: %w", s.Name, err)
	}
	return nil
}

// patched applies the strategic merge patch of a subset.
func patched(pod map[string]any, raw []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(raw)) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		return pod, nil
	}

	patch, err := subset.Object(raw)
	if err != nil {
		return nil, err
	}

	class := priorityClass(pod)
	if pod, err = subset.Merge(pod, patch, corev1.Pod{}); err != nil {
		return nil, fmt.Errorf("applying it to the pod: %w", err)
	}
	// The API server fills in the fields that belong to the class, and rejects a pod with other values.
	if spec, ok := pod["spec"].(map[string]any); ok && priorityClass(pod) != class {
		delete(spec, "priority")
		if own, _ := patch["spec"].(map[string]any); own["preemptionPolicy"] == nil {
			delete(spec, "preemptionPolicy")
		}
	}

	return pod, nil
}

func priorityClass(pod map[string]any) any {
	spec, _ := pod["spec"].(map[string]any)
	return spec["priorityClassName"]
}

// readable returns an error if the result is not a pod any more.
func readable(pod map[string]any) error {
	text, err := json.Marshal(pod)
	if err != nil {
		return fmt.Errorf("encoding the pod: %w", err)
	}
	if err := json.Unmarshal(text, &corev1.Pod{}); err != nil {
		return fmt.Errorf("what becomes of the pod is no pod: %w", err)
	}
	return nil
}
