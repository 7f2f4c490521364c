// Package cloneset keeps the pods of a CloneSet running from one template and moves them to a changed one, in
// place or by recreation.
//
// This package makes the decisions. It has the defaults, the validation, and [Make], a pure function without
// client or clock that turns a [Snapshot] into a [Plan]. Package controller takes the snapshot from its
// caches, applies the plan, and writes the status last.
//
// Decisions that are the same for all workloads, such as how a pod reaches another revision, are made by
// package podplan. Make decides in this order (CS-070):
//
//  1. revisions: which stored revision matches the template, or which one must be written (CS-080 ff);
//  2. release of pods that no longer match the selector, and the fate of claims without a pod (CS-056,
//     CS-064);
//  3. for each old pod, whether it can reach the update revision in place or must be recreated (CS-127);
//  4. which images can be pulled ahead of updates in place, by jobs that nothing waits for (CS-200 ff);
//  5. scaling: create pods, delete those that are specified, scale in (CS-110 ff);
//  6. if scaling changes nothing, the update of the next pods in order, within the budget (CS-120 ff);
//  7. refresh of all other pods: admit those that are complete, continue those whose grace period is over,
//     and record what the rest waits for (IPU-120);
//  8. status (CS-220 ff).
//
// Two rules always hold, whatever numbers the user sets:
//
//   - An available pod is taken away only while more than replicas - maxUnavailable pods are available. Pods
//     that are already specified for deletion count as spoken for.
//   - A pod gets at most one action per plan, and every pod that gets none has a reason that a person can
//     read.
package cloneset
