// Package daemonset decides what happens to the pods of an Advanced DaemonSet (docs/spec/daemonset.md).
//
// The defaults and rules of the spec, which webhooks use, are here too.
//
// # From snapshot to plan
//
// A [Snapshot] holds the set, its pods and revisions, the pods that it may adopt, and all nodes. [Make] turns
// it into a [Plan], without client, clock or chance. [podplan.Planner] makes the decisions that are common to
// pods of one template: their revisions, the way from one to another, the steps of an update in place, hooks,
// readiness. This package decides where the pods are:
//
//   - A site is a node with the pods that are meant for it. Whether it is eligible, and may keep the pods
//     that it has, depends only on its name, labels and taints (package nodes).
//   - The placement step looks at one site after the other. It creates missing pods, and deletes pods that
//     are too many, have failed, or may not stay. It also runs while the rollout is paused.
//   - The rolling step takes the sites of the update set, which partition and selector determine. It replaces
//     or updates old pods as far as maxUnavailable allows, or creates new ones beside them as far as maxSurge
//     allows.
//   - The name of a pod is derived from its node. If two managers both find a node empty, they create the
//     same pod, and the API server rejects one of the requests.
//
// # Invariants, which the simulation checks at every write
//
//   - There is never more than one pod on a node, and never more than two with a surge, whatever happens to
//     the managers.
//   - No available pod is taken out of service beyond maxUnavailable. A pod that is not available costs
//     nothing, unless the set asks for strict accounting.
//   - No pod outside the update set gets another revision, unless it is lost.
//   - No pod is created on a node that is not eligible.
//   - A pod that failed on a node is not replaced faster than the back-off of that node allows.
package daemonset
