package pub

// Keys of PersistentPodStates.
const (
	// AutoGeneratePersistentPodState: "true" on a workload has a PersistentPodState kept for it (PPS-070).
	AutoGeneratePersistentPodState = "kruise.io/auto-generate-persistent-pod-state"
	// RequiredPersistentTopology and PreferredPersistentTopology on such a workload are lists of node labels (PPS-071).
	RequiredPersistentTopology  = "kruise.io/required-persistent-topology"
	PreferredPersistentTopology = "kruise.io/preferred-persistent-topology"
	// PersistentPodAnnotations on such a workload is a list of annotations of pods (PPS-071).
	PersistentPodAnnotations = "kruise.io/persistent-pod-annotations"
	// PersistentPodStateRetentionPolicy on such a workload is the retention policy (PPS-074).
	PersistentPodStateRetentionPolicy = "kruise.io/persistent-pod-state-retention-policy"
	// GeneratedPersistentPodState on a PersistentPodState that is kept for a workload names that, as kind.group/name. It tells it from those of
	// users when the workload is deleted without what belongs to it (PPS-078).
	GeneratedPersistentPodState = "kruise.io/generated-persistent-pod-state"
	// InjectedPersistentPodState on a pod names the PersistentPodState that bound it to a place (PPS-036).
	InjectedPersistentPodState = "kruise.io/injected-persistent-pod-state"
	// InjectPersistentPodAnnotations: "true" on a PersistentPodState gives remembered annotations back to pods (PPS-104).
	InjectPersistentPodAnnotations = "kruise.io/inject-persistent-pod-annotations"
)
