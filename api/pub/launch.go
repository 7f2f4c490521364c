package pub

import (
	"strconv"
	"strings"
)

// Keys of container launch priority.
const (
	// LaunchPriority: LaunchOrdered on a pod starts its containers in the order of their list (ND-120).
	LaunchPriority = "apps.kruise.io/container-launch-priority"
	LaunchOrdered  = "Ordered"
	// LaunchCompleted: "true" on a pod means that all its containers may start (ND-138).
	LaunchCompleted = "apps.kruise.io/container-launch-priority-completed"
	// LaunchPriorityEnv holds the launch priority of a container; higher starts earlier (ND-121).
	LaunchPriorityEnv = "KRUISE_CONTAINER_PRIORITY"
	// LaunchBarrier: "true" is the label on the ConfigMaps that hold containers back (ND-145).
	LaunchBarrier = "apps.kruise.io/launch-barrier"
	// LaunchReleased on such a ConfigMap lists its keys, separated by commas, for readers of metadata (ND-145).
	LaunchReleased = "apps.kruise.io/launch-released"
)

// LaunchBarrierName returns the name of the ConfigMap that holds back the containers of the pod with that name (ND-130).
func LaunchBarrierName(pod string) string { return pod + barrierSuffix }

// LaunchBarrierPod returns the name of the pod whose containers the ConfigMap with that name holds back, false if it has no such name.
func LaunchBarrierPod(configMap string) (string, bool) {
	return strings.CutSuffix(configMap, barrierSuffix)
}

// LaunchBarrierKey returns the key that lets the containers of that launch priority start (ND-130).
func LaunchBarrierKey(priority int) string { return barrierPrefix + strconv.Itoa(priority) }

// LaunchBarrierPriority returns the launch priority of the containers that wait for the key, false if it is no such key (ND-132).
func LaunchBarrierPriority(key string) (int, bool) {
	text, ok := strings.CutPrefix(key, barrierPrefix)
	if !ok {
		return 0, false
	}
	priority, err := strconv.Atoi(text)
	return priority, err == nil && LaunchBarrierKey(priority) == key
}

const barrierSuffix, barrierPrefix = "-barrier", "p_"
