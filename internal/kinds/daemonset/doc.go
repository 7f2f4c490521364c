// Package daemonset decides what becomes of the pods of an Advanced DaemonSet (docs/spec/daemonset.md).
//
// Defaults and rules of the spec stand here too; webhooks use them.
//
// # What a plan is made from, and what it says
//
// A [Snapshot] holds the set, its pods and revisions, the pods that it may adopt, and all nodes. [Make] makes
// a [Plan] of it, without client, clock or chance. What pods of one template have in common is decided by the
// embedded [podplan.Planner]: their revisions, the way from one to another, the steps of an update in place,
// hooks, readiness. This package decides where the pods are:
//
//   - A site is a node with the pods that are meant for it. Whether it is eligible, and may keep the pods
//     that it has, is judged by its name, labels and taints alone (package nodes).
//   - The placement step looks at one site after the other: it creates what is missing, and deletes what is
//     too much, has failed, or may not stay. It goes on while the rollout is paused.
//   - The rolling step takes the sites of the update set, which partition and selector leave, and replaces or
//     updates old pods as far as maxUnavailable goes, or creates new ones beside them as far as maxSurge
//     goes.
//   - The name of a pod is made of its node: two managers that both find a node empty create the same pod,
//     and one of them is refused.
//
// # Invariants, which the simulation checks at every write
//
//   - There is never more than one pod on a node, and never more than two with a surge, whatever becomes of
//     the managers.
//   - No available pod is taken out of service beyond maxUnavailable; one that is not available costs
//     nothing, unless the set asks for strict accounting.
//   - No pod outside the update set gets another revision, unless it is lost.
//   - No pod is created on a node that is not eligible.
//   - A pod that failed on a node is not replaced faster than the back-off of that node allows.
package daemonset
