// Package rollout is the arithmetic of a rollout: how many pods there should be, of which revision, how many
// may be missing, and which come first. It knows numbers and pods, nothing of the kind that they belong to.
//
// Terms (docs/spec/cloneset.md, CS-090 ff): R replicas, P partition (pods that stay old), S maxSurge, U
// maxUnavailable, SU the scale strategy's maxUnavailable; all resolved to whole pods by [Resolve].
package rollout
