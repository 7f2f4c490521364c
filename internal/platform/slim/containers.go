package slim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// ephemeral keeps the names of ephemeral containers and the EphemeralJobs that added them.
func ephemeral(all []corev1.EphemeralContainer) []corev1.EphemeralContainer {
	if len(all) == 0 {
		return nil
	}

	kept := make([]corev1.EphemeralContainer, len(all))
	for i := range all {
		kept[i].Name = all[i].Name
		for j := len(all[i].Env) - 1; j >= 0; j-- { // the last one counts
			if env := &all[i].Env[j]; env.Name == pub.EphemeralJobEnv {
				kept[i].Env = []corev1.EnvVar{{Name: env.Name, Value: env.Value}}
				break
			}
		}
	}

	return kept
}

// ephemeralStatuses keeps the states of containers that EphemeralJobs added. The ephemeral containers of the
// pod must be slim already.
func ephemeralStatuses(pod *corev1.Pod, status *corev1.PodStatus) (kept []corev1.ContainerStatus) {
	if len(status.EphemeralContainerStatuses) == 0 {
		return nil
	}

	added := map[string]bool{}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Env != nil {
			added[c.Name] = true
		}
	}

	for i := range status.EphemeralContainerStatuses {
		s := &status.EphemeralContainerStatuses[i]
		if !added[s.Name] {
			continue
		}
		k := corev1.ContainerStatus{Name: s.Name}
		switch state := &s.State; {
		case state.Terminated != nil:
			k.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: state.Terminated.ExitCode}
		case state.Running != nil:
			k.State.Running = &corev1.ContainerStateRunning{}
		case state.Waiting != nil:
			k.State.Waiting = &corev1.ContainerStateWaiting{Reason: state.Waiting.Reason}
		}
		kept = append(kept, k)
	}

	return kept
}

// sum returns a checksum of container statuses, which changes when they change. For most pods nothing else is
// kept of them.
func sum(lists ...[]corev1.ContainerStatus) string {
	h := fnv.New64a()
	for _, list := range lists {
		for i := range list {
			fmt.Fprintln(h, list[i].Name, list[i].Ready, list[i].RestartCount, list[i].ContainerID)
		}
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// containers keeps what updates in place change and compare. Of the environment it keeps the variables that
// read metadata, and the named ones, which order the start, mark injected containers, or mark sidecars.
func containers(all []corev1.Container, named []string) []corev1.Container {
	if len(all) == 0 {
		return nil
	}

	kept := make([]corev1.Container, len(all))
	for i := range all {
		c := &all[i]
		kept[i] = corev1.Container{
			Name:               c.Name,
			Image:              c.Image,
			RestartPolicy:      c.RestartPolicy,
			RestartPolicyRules: c.RestartPolicyRules,
			Resources: corev1.ResourceRequirements{
				Limits:   c.Resources.Limits,
				Requests: c.Resources.Requests,
			},
		}
		kept[i].Env = environment(c.Env, named...)
		for _, policy := range c.ResizePolicy {
			if policy.RestartPolicy != corev1.NotRequired { // which the API server sets for all others
				kept[i].ResizePolicy = append(kept[i].ResizePolicy, policy)
			}
		}
	}

	return kept
}

// environment keeps the variables that read metadata, later variables of the same name, which override them,
// and the named variables.
func environment(all []corev1.EnvVar, named ...string) []corev1.EnvVar {
	var kept []corev1.EnvVar
	var names map[string]bool
	for i := range all {
		if _, _, reads := inplace.EnvReference(&all[i]); !reads && !names[all[i].Name] &&
			!slices.Contains(named, all[i].Name) {
			continue
		}
		if names == nil {
			names = map[string]bool{}
		}
		kept, names[all[i].Name] = append(kept, all[i]), true
	}

	return kept
}

// restartable keeps the statuses of sidecar containers, which are init containers with a restart policy.
func restartable(specs []corev1.Container, statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range statuses {
		if slices.ContainsFunc(specs, func(c corev1.Container) bool {
			return c.Name == statuses[i].Name && c.RestartPolicy != nil
		}) {
			kept = append(kept, statuses[i])
		}
	}
	return kept
}

// restarted keeps the restart counts and the states of init containers.
func restarted(statuses []corev1.ContainerStatus) (kept []corev1.ContainerStatus) {
	for _, s := range statuses {
		kept = append(kept, corev1.ContainerStatus{
			Name:         s.Name,
			Image:        s.Image,
			ImageID:      s.ImageID,
			ContainerID:  s.ContainerID,
			Ready:        s.Ready,
			Started:      s.Started,
			RestartCount: s.RestartCount,
			State:        s.State,
		})
	}

	return kept
}
