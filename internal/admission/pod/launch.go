package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/afloat-project/afloat/api/pub"
)

// Launch returns the step that makes containers wait until those of higher launch priority have started: each
// container reads a key of the pod's barrier ConfigMap into its environment, and kubelet starts no container
// whose keys are missing (ND-120, ND-121, ND-130). It comes after all steps that add containers (ND-125).
func Launch() Step {
	return Step{Name: "launch", Apply: func(_ context.Context, r *Request) ([]operations.Operation, error) {
		return launch(r.Pod, r.Raw)
	}}
}

func launch(pod *corev1.Pod, raw []byte) ([]operations.Operation, error) {
	if len(pod.Spec.Containers) < 2 {
		return nil, nil
	}

	priorities, errs := priorities(pod)
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	if alike(priorities) {
		return nil, nil
	}

	var changes []operations.Operation
	name := pod.Name
	if name == "" && pod.GenerateName != "" {
		name = generated(pod.GenerateName)
		changes = append(changes, operations.NewOperation("add", "/metadata/name", name))
	}

	barrier := pub.LaunchBarrierName(name)
	if len(barrier) > validation.DNS1123SubdomainMaxLength {
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, fmt.Sprintf(
			"launch priority needs a ConfigMap %s, whose name must have no more than %d characters", barrier,
			validation.DNS1123SubdomainMaxLength))}.ToAggregate()
	}

	if _, ok := pod.Annotations[pub.LaunchCompleted]; ok { // copied from the manifest of another pod
		changes = append(changes,
			operations.NewOperation("remove",
				"/metadata/annotations/"+strings.ReplaceAll(pub.LaunchCompleted, "/", "~1"), nil))
	}

	documents := sync.OnceValues(func() ([][]json.RawMessage, error) { return variables(raw) })
	for i := range pod.Spec.Containers {
		held, err := hold(i, pod.Spec.Containers[i].Env, documents, barrier, pub.LaunchBarrierKey(priorities[i]))
		if err != nil {
			return nil, err
		}
		changes = append(changes, held...)
	}

	return changes, nil
}

// variables returns the variables of each container of a pod as they were sent, with unknown fields.
func variables(raw []byte) ([][]json.RawMessage, error) {
	var pod struct {
		Spec struct {
			Containers []struct {
				Env []json.RawMessage `json:"env"`
			} `json:"containers"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &pod); err != nil {
		return nil, fmt.Errorf("reading the variables of the pod: %w", err)
	}
	all := make([][]json.RawMessage, len(pod.Spec.Containers))
	for i := range all {
		all[i] = pod.Spec.Containers[i].Env
	}
	return all, nil
}

// priorities returns the priorities of the containers, in their order.
func priorities(pod *corev1.Pod) ([]int, field.ErrorList) {
	all := make([]int, len(pod.Spec.Containers))
	if pod.Annotations[pub.LaunchPriority] == pub.LaunchOrdered {
		for i := range all {
			all[i] = -i
		}
		return all, nil
	}

	var errs field.ErrorList
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		at := -1 // kubelet uses the last of several variables of a name
		for j := range container.Env {
			if container.Env[j].Name == pub.LaunchPriorityEnv {
				at = j
			}
		}

		if at < 0 {
			continue
		}

		env, path := &container.Env[at], field.NewPath("spec", "containers").Index(i).Child("env").Index(at)
		if env.ValueFrom != nil {
			errs = append(errs,
				field.Invalid(path.Child("valueFrom"), env.ValueFrom,
					fmt.Sprintf("%s of container %s must be an integer in the manifest, not a reference",
						pub.LaunchPriorityEnv, container.Name)))
			continue
		}

		priority, err := strconv.Atoi(env.Value)
		if err != nil {
			errs = append(errs,
				field.Invalid(path.Child("value"), env.Value,
					fmt.Sprintf("%s of container %s must be an integer",
						pub.LaunchPriorityEnv, container.Name)))
		}

		all[i] = priority
	}

	return all, errs
}

// alike reports whether all priorities are equal, so that there is nothing to order.
func alike(priorities []int) bool {
	for _, priority := range priorities {
		if priority != priorities[0] {
			return false
		}
	}
	return true
}

// hold returns the operations that make the barrier the only variable of its name in the list of a container.
func hold(
	container int, env []corev1.EnvVar, documents func() ([][]json.RawMessage, error), name, key string,
) ([]operations.Operation, error) {
	path := fmt.Sprintf("/spec/containers/%d/env", container)
	barrier := corev1.EnvVar{
		Name: pub.ContainerBarrierEnv,
		ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: name},
				Key:                  key,
			},
		},
	}
	if len(env) == 0 {
		return []operations.Operation{operations.NewOperation("add", path, []any{barrier})}, nil
	}

	var present []int
	for i := range env {
		if env[i].Name == pub.ContainerBarrierEnv {
			present = append(present, i)
		}
	}

	switch {
	case len(present) == 0:
		return []operations.Operation{operations.NewOperation("add", path+"/-", barrier)}, nil
	case len(present) == 1 && equality.Semantic.DeepEqual(env[present[0]], barrier):
		return nil, nil
	case len(present) == 1:
		return []operations.Operation{
			operations.NewOperation("replace", fmt.Sprintf("%s/%d", path, present[0]), barrier),
		}, nil
	}

	// The list is replaced at once: to remove thousands of variables one by one takes time with the square of them.
	all, err := documents()
	if err != nil {
		return nil, err
	}
	list := make([]any, 0, len(env))
	for i, document := range all[container] {
		switch {
		case i == present[0]:
			list = append(list, barrier)
		case env[i].Name != pub.ContainerBarrierEnv:
			list = append(list, document)
		}
	}
	return []operations.Operation{operations.NewOperation("replace", path, list)}, nil
}

// generated returns a name that starts with the prefix, in the form in which the API server generates names.
// A long prefix is truncated.
func generated(prefix string) string {
	const suffix, most = 5, validation.DNS1123LabelMaxLength
	return prefix[:min(len(prefix), most-suffix)] + rand.String(suffix)
}
