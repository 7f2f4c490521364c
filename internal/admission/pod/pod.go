// Package pod changes pods when they are created. Each concern is a Step, a function from the pod to the operations of a JSON patch, so
// that fields that nobody here knows stay as they are. Steps come in an order and see what those before them have done.
package pod

import (
	"encoding/json"
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Step returns what it changes of a pod, or why the pod is refused.
type Step func(pod *corev1.Pod) ([]operations.Operation, error)

// Mutate applies the steps in order, and returns one patch of all.
func Mutate(raw []byte, steps ...Step) ([]operations.Operation, error) {
	var all []operations.Operation
	for _, step := range steps {
		pod := &corev1.Pod{}
		if err := json.Unmarshal(raw, pod); err != nil {
			return nil, fmt.Errorf("reading the pod: %w", err)
		}
		changes, err := step(pod)
		if err != nil {
			return nil, err
		}
		if len(changes) == 0 {
			continue
		}
		all = append(all, changes...)
		text, err := json.Marshal(changes)
		if err != nil {
			return nil, fmt.Errorf("encoding a patch of the pod: %w", err)
		}
		patch, err := jsonpatch.DecodePatch(text)
		if err != nil {
			return nil, fmt.Errorf("reading a patch of the pod: %w", err)
		}
		if raw, err = patch.Apply(raw); err != nil {
			return nil, fmt.Errorf("patching the pod: %w", err)
		}
	}
	return all, nil
}

// Gate returns the step that gives pods the readiness gate KruisePodReady: those of workloads of apps.kruise.io, or all (CRR-087).
func Gate(all bool) Step {
	return func(pod *corev1.Pod) ([]operations.Operation, error) {
		owner := metav1.GetControllerOfNoCopy(pod)
		if !all && (owner == nil || !strings.HasPrefix(owner.APIVersion, appsv1beta1.GroupVersion.Group+"/")) {
			return nil, nil
		}
		for _, gate := range pod.Spec.ReadinessGates {
			if gate.ConditionType == pub.KruisePodReady {
				return nil, nil
			}
		}
		gate := map[string]any{"conditionType": pub.KruisePodReady}
		if len(pod.Spec.ReadinessGates) == 0 {
			return []operations.Operation{operations.NewOperation("add", "/spec/readinessGates", []any{gate})}, nil
		}
		return []operations.Operation{operations.NewOperation("add", "/spec/readinessGates/-", gate)}, nil
	}
}
