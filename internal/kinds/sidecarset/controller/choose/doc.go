// Package choose decides which SidecarSets are injected into a new pod.
//
// An Index holds the SidecarSets and follows their events. A Chooser selects those of a pod, and for each of
// them the revision that the pod gets, as the Template that package inject works with. A Scope determines for
// which pods the API server must call the webhook at all. A Watch maintains all three.
package choose
