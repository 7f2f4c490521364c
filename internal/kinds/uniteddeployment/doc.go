// Package uniteddeployment decides what a UnitedDeployment does next. A UnitedDeployment has one workload,
// its child, for each of its subsets. All children are made from one template, and all replicas are
// distributed over them (UD-001).
//
// # Types
//
// A [Template] is the template as a document, of one [Kind]. [Template.Build] returns the document of the
// child of a subset, and [Bind] its pod template. [Merge] changes a live child to what such a document says,
// and leaves alone what others wrote, including defaults. A [Child] is what plans read of a child of any
// kind. A [Snapshot] is the object with its children, pods, revisions and the time. [Make] returns a [Plan]
// for it: the revision to write, pods to be marked, children to adopt, release or delete, and one [Verdict]
// for each subset: how many replicas it gets, what is to be done for that, and what it waits for.
// [Plan.Status] is the status, which [Plan.Finish] completes with the [Outcome].
//
// Allocation is pure arithmetic: [Specify] for fixed numbers, [Stretch] between minima and maxima, [Narrow]
// and [Adapt] for unschedulable subsets, and [Reserve] with substitutes for reserved pods.
//
// # One child for a subset
//
// The name of a child is derived from the UID of the UnitedDeployment, the kind and the subset ([NameOf]). So
// a creation whose response was lost, or that was sent by a manager that has died, cannot happen twice: the
// second attempt finds the first child. Children are found by the UID of their controller, in its namespace.
//
// # Invariants
//
//   - The numbers of the subsets add up to the replicas. With reservation there is exactly one more for each
//     reserved pod.
//   - A child is only deleted if its subset or its kind was removed from a spec that can be read, or if
//     another child of its subset replaces it.
//   - While the spec cannot be acted on, children stay as they are, and a condition and an event say why.
//   - A condition that decides where pods go is stored before pods go there.
//   - A subset only loses replicas if the spec, or pods that cannot be scheduled, require it.
//   - The plan for an unchanged world writes nothing.
package uniteddeployment
