package ephemeraljob

import (
	"encoding/json"
	"fmt"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
)

// Containers returns the containers of the job as they are added to pods: as written by the user, including
// fields that our types do not know, and with the variable that marks them at the end of the list (EJ-018). A
// variable of that name from anybody else is dropped.
func Containers(job *appsv1alpha1.EphemeralJob) ([]map[string]json.RawMessage, error) {
	var containers []map[string]json.RawMessage
	if err := json.Unmarshal(job.Spec.Template.EphemeralContainers.Raw(), &containers); err != nil {
		return nil, fmt.Errorf("reading the ephemeral containers: %w", err)
	}

	mark, err := json.Marshal(corev1.EnvVar{Name: pub.EphemeralJobEnv, Value: string(job.UID)})
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", pub.EphemeralJobEnv, err)
	}

	for i, container := range containers {
		if container == nil {
			return nil, fmt.Errorf("container %d is null", i)
		}
		var given, env []json.RawMessage
		if text, ok := container["env"]; ok {
			if err := json.Unmarshal(text, &given); err != nil {
				return nil, fmt.Errorf("reading variables: %w", err)
			}
		}
		for _, variable := range given {
			var named struct{ Name string }
			if json.Unmarshal(variable, &named) != nil || named.Name != pub.EphemeralJobEnv {
				env = append(env, variable)
			}
		}
		if container["env"], err = json.Marshal(append(env, mark)); err != nil {
			return nil, fmt.Errorf("encoding variables: %w", err)
		}
	}

	return containers, nil
}

// Injection returns the JSON patch that adds the containers to exactly that version of a pod, after those
// that it has already (EJ-045).
func Injection(pod *corev1.Pod, containers []map[string]json.RawMessage) ([]byte, error) {
	const list = "/spec/ephemeralContainers"
	patch := []jsonpatch.Operation{jsonpatch.NewOperation("replace", "/metadata/uid", pod.UID),
		jsonpatch.NewOperation("replace", "/metadata/resourceVersion", pod.ResourceVersion)}

	if len(pod.Spec.EphemeralContainers) == 0 {
		patch = append(patch, jsonpatch.NewOperation("add", list, containers))
	} else {
		for _, container := range containers {
			patch = append(patch, jsonpatch.NewOperation("add", list+"/-", container))
		}
	}

	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}

	return body, nil
}
