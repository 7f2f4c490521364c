// Package uniteddeployment decides what a UnitedDeployment does next: one workload, its child, for each of
// its subsets, all from one template, with all replicas split over them (UD-001).
//
// # Types
//
// A [Template] is the template as a document, of one [Kind]; [Template.Build] makes of it the document of the
// child of a subset, and [Bind] its pod template. [Merge] makes a live child what such a document says, and
// leaves alone what others wrote, defaults included. A [Child] is what plans read of a child of any kind. A
// [Snapshot] is the object with its children, pods, revisions and the time. [Make] makes a [Plan] of it: the
// revision to write, pods to be marked, children to adopt, release, delete, and one [Verdict] for each
// subset: how many replicas it is given, what is to be done for that, and what it waits for. [Plan.Status] is
// the status, completed by the [Outcome].
//
// Allocation is arithmetic alone: [Specify] for fixed numbers, [Stretch] between minima and maxima, [Narrow]
// for what is unschedulable, and [Reserve] with substitutes for reserved pods.
//
// # One child for a subset
//
// The name of a child is made of the UID of the UnitedDeployment, its kind and its subset ([NameOf]). So a
// creation whose answer was lost, or which a dead manager sent, cannot be repeated: the second finds the
// first. Children are found by the UID of their controller, in its namespace.
//
// # Invariants
//
//   - The numbers given to the subsets are together the replicas, and with reservation beside these exactly
//     one more for each reserved pod.
//   - No child is deleted but when its subset or its kind left a spec that can be read, or when another child
//     of its subset does its work.
//   - While the spec cannot be acted on, children stay as they are, and a condition and an event say why.
//   - A condition that decides where pods go is stored before pods go there.
//   - A number is given up by one subset only for what the spec, or pods that cannot be scheduled, ask for.
//   - The plan for an unchanged world writes nothing.
package uniteddeployment
