package pub

// Keys of ContainerRecreateRequests.
const (
	// RecreateActive is the label "true" on requests that the node daemons watch; the manager removes it after completion (CRR-035,
	// CRR-057).
	RecreateActive = "crr.apps.kruise.io/active"
	// RecreateNodeName is the label with the node of the pod (CRR-035). It cannot be changed (CRR-046).
	RecreateNodeName = "crr.apps.kruise.io/node-name"
	// RecreatePodUID is the label with the UID of the request's pod (CRR-035). It cannot be changed (CRR-046).
	RecreatePodUID = "crr.apps.kruise.io/pod-uid"
	// RecreateUnreadyAcquired is the finalizer on requests that hold their pod not ready (CRR-080). In v1alpha1 it is also the annotation
	// with the RFC 3339 time at which the pod was made not ready (CRR-147).
	RecreateUnreadyAcquired = "crr.apps.kruise.io/unready-acquired"
	// RecreateContainerStatuses is the annotation with the v1alpha1 form of status.containerStatusSnapshot, as JSON (CRR-146).
	RecreateContainerStatuses = "crr.apps.kruise.io/sync-container-statuses"
	// RecreateAfterRestarts is the annotation with how often the containers of a request must have restarted: it is not carried out if
	// one has restarted since (PPM-121).
	RecreateAfterRestarts = "crr.apps.kruise.io/after-restarts"
	// RecreateUserAgent is the name of the writer of ContainerRecreateRequests in the condition KruisePodReady (CRR-081).
	RecreateUserAgent = "ContainerRecreateRequest"
)

// The label NodeType: VirtualNode marks nodes without a node daemon, and the requests for their pods (CRR-036, IMG-050).
const (
	NodeType    = "type"
	VirtualNode = "virtual-kubelet"
)

// SidecarTerminated is the pod condition that lets containers of a finished pod be recreated (CRR-028): its phase was set ahead of the end
// of its sidecars (JST-040).
const SidecarTerminated = "SidecarTerminated"

// Annotations of pods whose phase was set ahead of the end of their sidecars (docs/spec/sidecar-terminator.md).
const (
	// SidecarTerminatedAt has the time at which that was done (JST-041). It is changed together with the phase, because a kubelet acts on a
	// change of annotations at once, and on one of the status alone a minute later.
	SidecarTerminatedAt = "apps.kruise.io/sidecar-terminated-at"
)

// Environment variables that mark the sidecars of pods that run to completion (JST-010 to JST-012).
const (
	// TerminateSidecarEnv: with "true" the container is stopped once all main containers are done.
	TerminateSidecarEnv = "KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT"
	// TerminateSidecarIgnoreExitEnv: with "true", beside the former, the exit code of the container does not count.
	TerminateSidecarIgnoreExitEnv = "KRUISE_TERMINATE_SIDECAR_IGNORE_EXIT_CODE"
	// TerminateSidecarImageEnv has the image that the container gets, and ends with, where there is no node daemon.
	TerminateSidecarImageEnv = "KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT_WITH_IMAGE"
)
