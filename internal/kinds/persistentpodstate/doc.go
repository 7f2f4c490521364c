// Package persistentpodstate decides where pods with stable names are scheduled when they come back (PPS-001,
// PPS-003).
//
// # Types
//
// A [Workload] is what is read of a workload. [Make] plans the entries of a PersistentPodState from a
// [Snapshot] of it, its workload, its pods and their nodes. [Bind] applies an entry to a new pod. [Generate]
// plans the PersistentPodState that annotations of a workload ask for. [Validate] validates what users write.
//
// # Invariants
//
//   - A running pod is neither changed nor moved.
//   - The entry of a pod is a place where a pod of that name was ready. A pod that is not ready changes
//     nothing.
//   - The plan names the entries that it removes, and those of pods that moved. They are written only after a
//     read from the API server: the caches of workloads and pods may be older than the status.
//   - A PersistentPodState that is not generated for this very workload is neither changed nor deleted.
//   - The plan for an unchanged world changes nothing.
package persistentpodstate
