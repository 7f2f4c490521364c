package metadata

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/inplace"
)

// triggers tells whether an event causes a pass (ND-088 to ND-091). before is nil for a new pod; initial says
// that the pod existed when the daemon started.
func triggers(before, now *corev1.Pod, initial, envFromMetadata bool) bool {
	if !Eligible(now) || skipped(now) != "" {
		return false
	}

	meta, exists := reported(now)
	if !exists {
		// A pod that ran without a report gets none until something changes. Otherwise a starting daemon
		// would write to every pod of its node (ND-090).
		return before == nil && !initial ||
			before != nil && (containersChanged(before, now) || envFromMetadata && envChanged(before, now)) ||
			envFromMetadata && restartWanted(now)
	}
	if before != nil && len(before.Spec.Containers) != len(now.Spec.Containers) {
		return true
	}

	// by name, because spec, status and report have different orders (ND-089)
	for _, status := range statuses(now) {
		container, _ := find(now, status.Name)
		if container == nil || status.ContainerID == "" {
			continue
		}
		e := entry(meta, status.Name, status.ContainerID)
		if e == nil || envFromMetadata &&
			e.Hashes.ExtractedEnvFromMetadataHash != number(inplace.EnvHash(now, container)) {
			return true
		}
	}

	return envFromMetadata && (restartWanted(now) || before != nil && envChanged(before, now))
}

func containersChanged(before, now *corev1.Pod) bool {
	if len(before.Spec.Containers) != len(now.Spec.Containers) {
		return true
	}
	ids := map[string]string{}
	for _, status := range statuses(before) {
		ids[status.Name] = status.ContainerID
	}
	return slices.ContainsFunc(statuses(now),
		func(s *corev1.ContainerStatus) bool { return s.ContainerID != "" && ids[s.Name] != s.ContainerID })
}

func envChanged(before, now *corev1.Pod) bool {
	return slices.ContainsFunc(statuses(now), func(s *corev1.ContainerStatus) bool {
		container, _ := find(now, s.Name)
		former, _ := find(before, s.Name)
		return container != nil && (former == nil ||
			inplace.EnvHash(before, former) != inplace.EnvHash(now, container))
	})
}

// restartWanted tells whether the record of the pod's update names a container that still runs.
func restartWanted(pod *corev1.Pod) bool {
	state, err := inplace.StateOf(pod)
	if err != nil || state == nil {
		return false
	}
	return slices.ContainsFunc(statuses(pod), func(s *corev1.ContainerStatus) bool {
		return s.ContainerID != "" && s.State.Running != nil &&
			(state.RestartContainers[s.Name] == s.ContainerID ||
				state.EnvContainers[s.Name] == s.ContainerID)
	})
}
