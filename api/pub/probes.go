package pub

// Keys of PodProbeMarkers and of the pods that they probe.
const (
	// ProbeCleanup is the finalizer on PodProbeMarkers whose probes must be taken off all nodes first (PPM-050).
	ProbeCleanup = "kruise.io/node-pod-probe-cleanup"
	// PodProbes is the annotation with the probes that a pod takes along to a node without our daemon, as JSON (PPM-110).
	PodProbes = "kruise.io/podprobe"
	// PodProbeMarkers is the annotation with the names of the PodProbeMarkers that these are from, sorted, separated by commas (PPM-110).
	PodProbeMarkers = "kruise.io/podprobemarker-list"
	// UsingEnhancedLiveness: "true" is the annotation on pods whose liveness probes the node daemon is to carry out (PPM-120).
	UsingEnhancedLiveness = "apps.kruise.io/using-enhanced-liveness"
	// LivenessProbes is the annotation with these probes, as JSON (PPM-120).
	LivenessProbes = "apps.kruise.io/container-probe-context"
)
