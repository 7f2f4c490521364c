// Package inject adds the containers of SidecarSets to pods that are being created.
//
// A Template is a SidecarSet, or a revision of one, prepared for injection. Inject is a pure function from a
// pod and its Templates to the operations of a JSON patch. The operations address items of lists, so that
// unknown fields of the pod's containers are kept. A Template keeps documents, so that unknown fields of a
// sidecar reach the pod (SS-D24).
//
// Injection is idempotent. A pod that is injected twice, or is created from the manifest of an injected pod,
// is the same as after the first injection, apart from timestamps (SS-107). Therefore containers of
// SidecarSets that a pod already has count as such, and never as the pod's own.
package inject
