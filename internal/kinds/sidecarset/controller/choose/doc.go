// Package choose says which SidecarSets a pod gets that is created.
//
// An Index knows the SidecarSets, kept by events; a Chooser picks those of a pod, and of each the revision
// that the pod gets, as the Template that package inject works with. Scope says which pods the API server
// must ask about at all. A Watch keeps all three.
package choose
