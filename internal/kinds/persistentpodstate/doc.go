// Package persistentpodstate decides where pods with stable names come back to (PPS-001, PPS-003).
//
// # Types
//
// A [Workload] is what is read of a workload. [Make] plans, from a [Snapshot] of a PersistentPodState with
// its workload, its pods and their nodes, what is remembered. [Bind] says what of it a pod gets that is
// created. [Generate] keeps the PersistentPodState that annotations of a workload ask for. [Validate] judges
// what users write.
//
// # Invariants
//
//   - A running pod is neither changed nor moved.
//   - What is remembered of a pod is a place where a pod of that name was ready. One that is not ready
//     changes nothing.
//   - What is forgotten, and what is remembered anew of a pod that was elsewhere before, is named by the
//     plan, and is written only after a look at the API server: the caches of workloads and pods may be older
//     than what is remembered.
//   - A PersistentPodState that is not generated for this very workload is neither changed nor deleted.
//   - The plan for an unchanged world changes nothing.
package persistentpodstate
