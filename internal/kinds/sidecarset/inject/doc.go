// Package inject adds the containers of SidecarSets to pods that are created.
//
// An Index knows the SidecarSets, kept by events; a Chooser picks those of a pod, and of each the revision that the pod gets, as a
// Template: the SidecarSet made ready for injection. Inject is a pure function from a pod and its Templates to the operations of a JSON
// patch. The operations name places in lists, so that what nobody here knows stays at its container, and a Template keeps documents, so
// that what nobody here knows of a sidecar reaches the pod (SS-D24).
//
// Injection is repeatable: a pod that passes twice, or is made from the manifest of an injected one, comes out as after the first time,
// timestamps aside (SS-107). For this the containers of SidecarSets that a pod has already count as such, never as the pod's own.
//
// Scope says which pods the API server must ask about at all.
package inject
