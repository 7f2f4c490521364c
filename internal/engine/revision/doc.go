// Package revision names and compares the revisions of a workload's pod template, wire-compatible with the
// reference.
//
// A revision's data is {"spec":{"template":{...,"$patch":"replace"}}} with sorted keys (CS-080), and its name
// is the owner's name and a hash of these bytes (CS-081). Both must come out as the reference writes them, or
// a switch between the two would roll every workload. The reference encodes templates through the typed
// structs of Kubernetes 1.32, so [Canonical] does the same: what our types know is written as they encode it,
// `creationTimestamp: null` included, and what they do not know is carried over from the document as it
// stands. Two templates are equal if their canonical forms are (CS-085).
package revision
