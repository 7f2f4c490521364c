// Package rollout contains the arithmetic of a rollout: how many pods there should be, of which revision, how
// many may be missing, and which come first. It deals with numbers and pods, independent of the kind of
// workload.
//
// Symbols (docs/spec/cloneset.md, CS-090 ff): R is replicas, P is partition (pods that stay at the old
// revision), S is maxSurge, U is maxUnavailable, and SU is the scale strategy's maxUnavailable, all resolved
// to whole pods by [Resolve].
package rollout
