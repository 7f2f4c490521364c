package pub

// Keys of container launch priority.
const (
	// LaunchPriority: LaunchOrdered on a pod starts its containers in the order of their list (ND-120).
	LaunchPriority = "apps.kruise.io/container-launch-priority"
	LaunchOrdered  = "Ordered"
	// LaunchCompleted: "true" on a pod tells that all its containers may start (ND-138).
	LaunchCompleted = "apps.kruise.io/container-launch-priority-completed"
	// LaunchPriorityEnv holds the launch priority of a container; higher starts earlier (ND-121).
	LaunchPriorityEnv = "KRUISE_CONTAINER_PRIORITY"
	// LaunchBarrier: "true" is the label on the ConfigMaps that hold containers back (ND-145).
	LaunchBarrier = "apps.kruise.io/launch-barrier"
)
