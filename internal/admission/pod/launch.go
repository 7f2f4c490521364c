package pod

import (
	"fmt"
	"strconv"
	"strings"

	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/afloat-project/afloat/api/pub"
)

// Launch returns the step that holds containers back until those of higher launch priority have started: each
// reads a key of the pod's barrier ConfigMap into its environment, and kubelet starts no container whose keys
// are missing (ND-120, ND-121, ND-130). It comes after all steps that add containers (ND-125).
func Launch() Step { return simple("launch", launch) }

func launch(pod *corev1.Pod) ([]operations.Operation, error) {
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
	for i := range pod.Spec.Containers {
		changes = append(changes,
			hold(fmt.Sprintf("/spec/containers/%d/env", i), pod.Spec.Containers[i].Env, barrier,
				pub.LaunchBarrierKey(priorities[i]))...)
	}
	return changes, nil
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
		at := -1 // of several variables with a name kubelet takes the last
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
					fmt.Sprintf("%s of container %s must be an integer", pub.LaunchPriorityEnv,
						container.Name)))
		}
		all[i] = priority
	}
	return all, errs
}

// alike tells whether all priorities are equal, so that there is nothing to order.
func alike(priorities []int) bool {
	for _, priority := range priorities {
		if priority != priorities[0] {
			return false
		}
	}
	return true
}

// hold makes the barrier the only variable of its name in the list.
func hold(path string, env []corev1.EnvVar, name, key string) []operations.Operation {
	barrier := corev1.EnvVar{Name: pub.ContainerBarrierEnv, ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name},
			Key:                  key,
		}}}
	if len(env) == 0 {
		return []operations.Operation{operations.NewOperation("add", path, []any{barrier})}
	}
	var present []int
	for i := range env {
		if env[i].Name == pub.ContainerBarrierEnv {
			present = append(present, i)
		}
	}
	if len(present) == 0 {
		return []operations.Operation{operations.NewOperation("add", path+"/-", barrier)}
	}
	var changes []operations.Operation
	for i := len(present) - 1; i > 0; i-- { // from the end, so that the indices before stay valid
		changes = append(changes,
			operations.NewOperation("remove", fmt.Sprintf("%s/%d", path, present[i]), nil))
	}
	if !equality.Semantic.DeepEqual(env[present[0]], barrier) {
		changes = append(changes,
			operations.NewOperation("replace", fmt.Sprintf("%s/%d", path, present[0]), barrier))
	}
	return changes
}

// generated returns a name that starts with the prefix, in the form in which the API server generates names.
// A long prefix is cut.
func generated(prefix string) string {
	const suffix, most = 5, validation.DNS1123LabelMaxLength
	return prefix[:min(len(prefix), most-suffix)] + rand.String(suffix)
}
