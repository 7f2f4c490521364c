// Package statefulset decides what happens to the pods and PVCs of an Advanced StatefulSet
// (docs/spec/statefulset.md).
//
// The defaults and rules of the spec, which webhooks use, are here too, and so is the computation of slots.
//
// # From snapshot to plan
//
// A [Snapshot] holds the set, its pods and revisions, the pods that it may adopt, and the PVCs of its slots.
// [Make] turns it into a [Plan], without client, clock or chance. [podplan.Planner] makes the decisions that
// are common to pods of one template: their revisions, the way from one to another, the steps of an update in
// place, hooks, readiness. This package decides which pods there are:
//
//   - Slots are the first ordinals from the start on that are not reserved, as many as replicas. They are
//     iterated only as far as there are pods and as far as one plan creates new ones, so that the cost of a
//     plan depends on the pods of the set, not on the numbers that a user writes.
//   - Every slot has one pod, whose name the API server allows only once. A new pod is created when the
//     former object is gone.
//   - A pod whose ordinal is no longer a slot is condemned, and is deleted. The highest ordinal goes first,
//     and under OrderedReady one goes after the other.
//   - A slot is down if its pod is missing, is being deleted, does not serve, is being updated, or waits for
//     the size of a volume. No pod that is not down is taken out of service while as many slots are down as
//     maxUnavailable allows. Taking one that is down costs nothing.
//   - Under OrderedReady one slot that is down blocks everything except what brings it, or another slot that
//     is down, back.
//
// # Invariants, which the simulation checks at every write
//
//   - There are never two pods of one ordinal, and none is created while its former object exists.
//   - No pod is taken out of service beyond maxUnavailable, whatever happens to the managers.
//   - Under OrderedReady no pod is created or deleted out of order.
//   - No PVC gets an owner that the retention policy does not give it, and the controller deletes none
//     itself.
//   - Partition pods stay at the current revision, or wherever they are.
package statefulset
