// Package resourcedistribution decides what becomes of the copies of a ResourceDistribution: a Secret or
// ConfigMap of one name in many namespaces (RD-001, RD-002).
//
// # Types
//
// A [Resource] is what is distributed, read once from spec.resource; [Targets] say which namespaces get it. A
// [Copy] is what is known of the object of that kind and name in one namespace: who controls it, and digests
// of what it contains. The content itself is not kept. [Decide] is the planner: of one namespace, its copy
// and the wanted resource it makes a [Verdict], an action with the outcome if nothing is to be done. A
// [Tally] holds the outcomes of all namespaces, and makes the status of them. [Validate] judges what users
// write.
//
// The planner decides about one namespace at a time: namespaces do not depend on each other, and a change in
// one of ten thousand must not cost more than a look at that one.
//
// # Invariants
//
//   - An object that this very ResourceDistribution does not control, by the UID in its controller reference,
//     is neither written nor deleted.
//   - Nothing is written in a namespace that is no target but the deletion of the own copy, and nothing at
//     all for one that cannot be read: a selector with a fault selects neither nothing nor everything.
//   - kube-system and kube-public are never targets.
//   - The verdict on a copy that is as it should be is to do nothing.
//   - Counters and lists of the status are those of the outcomes, whatever the order in which they came.
package resourcedistribution
