// Package broadcastjob decides what becomes of the pods of a BroadcastJob (docs/spec/broadcast-job.md).
//
// Defaults and rules of the spec stand here too; webhooks use them.
//
// # What a plan is made from, and what it says
//
// A [Snapshot] holds the job, its pods, and, unless the job has ended, all nodes. [Make] makes a [Plan] of
// it, without client, clock or chance, in this order:
//
//   - A job that has ended gets its leftovers deleted: pods that were still active, or restarted too often.
//     Later the job itself goes, if it has a time to live.
//   - Each pod is sorted by its state, and put onto the node for which it is meant. Whether a node is
//     eligible, and may keep an unfinished pod, is judged by the template and the node alone (package nodes).
//   - Then it is decided whether the job is paused, by its user or by failed pods that nobody has
//     acknowledged; whether it fails, because of a failed pod or its deadline; which pods go, because their
//     node does not fit any more or has another one; which nodes get a pod, as far as parallelism goes; and
//     whether the job is complete.
//
// What ends a job is written before what follows from it: the status first, then pods are deleted. So nothing
// need be remembered between the two, and a manager that takes over goes on from what it finds.
//
// The name of a pod is made of its node: two managers that both find the node empty create the same pod, and
// one of them is refused.
//
// # Invariants, which the simulation checks at every write
//
//   - No pod is created on a node that has one of the job, or is not eligible; nor while the job is paused,
//     has ended, or is being deleted.
//   - No pod is created while as many are active as parallelism allows.
//   - A pod that finished is deleted only if another one of its node finished too.
//   - An unfinished pod is deleted only if its node does not fit it, another one has its place, or the job
//     has ended.
//   - A job completes only when each eligible node, and each that holds a pod, has a finished one.
//   - A job that has ended starts nothing any more, and its condition stays.
package broadcastjob
