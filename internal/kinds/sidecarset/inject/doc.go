// Package inject adds the containers of SidecarSets to pods that are created.
//
// A Template is a SidecarSet, or a revision of one, made ready for injection. Inject is a pure function from
// a pod and its Templates to the operations of a JSON patch. The operations name places in lists, so that
// what nobody here knows stays at its container, and a Template keeps documents, so that what nobody here
// knows of a sidecar reaches the pod (SS-D24).
//
// Injection is repeatable: a pod that passes twice, or is made from the manifest of an injected one, comes
// out as after the first time, timestamps aside (SS-107). For this the containers of SidecarSets that a pod
// has already count as such, never as the pod's own.
package inject
