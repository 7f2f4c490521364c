// Package statefulset decides what becomes of the pods and PVCs of an Advanced StatefulSet
// (docs/spec/statefulset.md).
//
// Defaults and rules of the spec, and which ordinals are slots, stand here too; webhooks use them.
//
// # What a plan is made from, and what it says
//
// A [Snapshot] holds the set, its pods and revisions, the pods that it may adopt, and the PVCs of its slots.
// [Make] makes a [Plan] of it, without client, clock or chance. What pods of one template have in common is
// decided by the embedded [podplan.Planner]: their revisions, the way from one to another, the steps of an
// update in place, hooks, readiness. This package decides who the pods are:
//
//   - Slots are the first replicas ordinals from the start on that are not reserved. They are walked as far
//     as there are pods, and as far as one plan creates new ones, so that a plan costs what the set has, not
//     what a user wrote.
//   - Every slot has one pod, with a name that the API server gives out once: a new pod is created when the
//     former object is gone.
//   - What is not a slot any more is condemned, and goes; the highest ordinal first, and one after the other
//     under OrderedReady.
//   - A slot is down if its pod is missing, goes, does not serve, is being updated, or waits for the size of
//     a volume. No pod that is not down is taken out of service while as many slots are down as
//     maxUnavailable allows; one that is down costs nothing.
//   - Under OrderedReady one slot that is down holds up everything but what brings it, or another that is
//     down, back.
//
// # Invariants, which the simulation checks at every write
//
//   - There are never two pods of one ordinal, and none is created while its former object exists.
//   - No pod is taken out of service beyond maxUnavailable, whatever becomes of the managers.
//   - Under OrderedReady no pod is created or deleted out of order.
//   - No PVC gets an owner that the retention policy does not give it, and the controller deletes none
//     itself.
//   - Partition pods stay at the current revision, or wherever they are.
package statefulset
