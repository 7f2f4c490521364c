// Package resourcedistribution decides about the copies of a ResourceDistribution: a Secret or ConfigMap of
// one name in many namespaces (RD-001, RD-002).
//
// # Types
//
// A [Resource] is what is distributed, parsed once from spec.resource. [Targets] define which namespaces get
// it. A [Copy] is what is known of the object of that kind and name in one namespace: who controls it, and
// digests of what it contains. The content itself is not kept. [Decide] is the planner: from a namespace, its
// copy and the wanted resource it makes a [Verdict], which is an action, and the outcome if nothing is to be
// done. A [Tally] holds the outcomes of all namespaces, and computes the status from them. [Validate]
// validates what users write.
//
// The planner decides about one namespace at a time, since namespaces do not depend on each other, and a
// change in one of ten thousand must not cost more than looking at that one.
//
// # Invariants
//
//   - An object that is not controlled by this very ResourceDistribution, by the UID in its controller
//     reference, is neither written nor deleted.
//   - In a namespace that is no target, nothing is written except that the own copy is deleted. Nothing at
//     all is written for a spec that cannot be read: a faulty selector selects neither nothing nor
//     everything.
//   - kube-system and kube-public are never targets.
//   - The verdict on a copy that is as it should be is to do nothing.
//   - Counters and lists of the status are those of the outcomes, regardless of the order in which they came.
package resourcedistribution
