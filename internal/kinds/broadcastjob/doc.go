// Package broadcastjob decides what happens to the pods of a BroadcastJob (docs/spec/broadcast-job.md).
//
// The defaults and rules of the spec, which webhooks use, are here too.
//
// # From snapshot to plan
//
// A [Snapshot] holds the job, its pods, and, unless the job has ended, all nodes. [Make] turns it into a
// [Plan], without client, clock or chance, in this order:
//
//   - If the job has ended, pods are deleted that were still active or restarted too often. Later the job
//     itself is deleted if it has a time to live.
//   - Each pod gets a state, and is assigned to the node for which it is meant. Whether a node is eligible,
//     and may keep an unfinished pod, depends only on the template and the node (package nodes).
//   - Then Make decides whether the job is paused, by its user or because of failed pods that nobody has
//     acknowledged; whether it fails, because of a failed pod or its deadline; which pods to delete, because
//     their node no longer fits or has another pod; which nodes get a pod, as far as parallelism allows; and
//     whether the job is complete.
//
// The end of a job is written before its consequences are carried out: first the status is written, then pods
// are deleted. So nothing has to be remembered between the two, and a manager that takes over continues from
// what it finds.
//
// The name of a pod is derived from its node. If two managers both find the node empty, they create the same
// pod, and the API server rejects one of the requests.
//
// # Invariants, which the simulation checks at every write
//
//   - No pod is created on a node that has a pod of the job or is not eligible, nor while the job is paused,
//     has ended, or is being deleted.
//   - No pod is created while as many are active as parallelism allows.
//   - A finished pod is deleted only if another pod of its node finished too.
//   - An unfinished pod is deleted only if its node does not fit it, another pod has its place, or the job
//     has ended.
//   - A job completes only when each eligible node, and each node that holds a pod, has a finished pod.
//   - A job that has ended starts nothing any more, and its condition stays.
package broadcastjob
