// Package revision names and compares the revisions of a workload's pod template, wire-compatible with
// OpenKruise.
//
// The data of a revision is {"spec":{"template":{...,"$patch":"replace"}}} with sorted keys (CS-080), and its
// name is the owner's name and a hash of these bytes (CS-081). Both must be equal to what OpenKruise writes,
// or a switch between the two would roll out every workload again. OpenKruise encodes templates with the Go
// types of Kubernetes 1.32, so [Canonical] does the same: fields that our types know are written as these
// encode them, including `creationTimestamp: null`, and other fields are copied from the document unchanged.
// Two templates are equal if their canonical forms are (CS-085).
package revision
