// Package cloneset keeps the pods of a CloneSet running from one template and moves them to a changed one, in
// place or by recreation.
//
// This package decides: it has defaults, validation, and [Make], a pure function without client or clock that
// turns a [Snapshot] into a [Plan]. Package controller takes the snapshot from its caches, carries the plan
// out, and writes the status last.
//
// What plans of all workloads have in common, such as how a pod reaches another revision, is decided by
// package podplan. Make decides in this order (CS-070):
//
//  1. revisions: which stored revision is the template, or which one must be written (CS-080 ff);
//  2. release of pods that the selector lost, and what becomes of claims without a pod (CS-056, CS-064);
//  3. per old pod: can it reach the update revision in place, or must it be recreated? (CS-127);
//  4. which images can be pulled ahead of updates in place, by jobs that nothing waits for (CS-200 ff);
//  5. scaling: create, delete what is specified, scale in (CS-110 ff);
//  6. if scaling changes nothing: update the next pods in order, as far as the budget goes (CS-120 ff);
//  7. refresh of all other pods: admit those that are complete, continue those whose grace period is over,
//     say what the rest waits for (IPU-120);
//  8. status (CS-220 ff).
//
// Two rules hold throughout, whatever the user's numbers:
//
//   - An available pod is taken away only while more than replicas - maxUnavailable pods are available. Pods
//     already specified for deletion count as spoken for.
//   - A pod gets at most one action per plan, and every pod that gets none has a reason that a person can
//     read.
package cloneset
