// Package rehearsal predicts what a manager would do, without a cluster. The kubectl plugin reads the input
// of a plan with the user's own rights, puts it on a [Stage], and makes the same passes there as the manager.
// Their writes change only the stage.
//
// It answers two questions:
//
//   - Why: what would the next pass decide about each pod? The answer is one pass over the stage as it is;
//     see [Stage.Ask].
//   - What if: which pods are touched, how, and in which waves, if an object is replaced by another one?
//     After the replacement, passes alternate with a kubelet that makes every new or updated pod ready; see
//     [Stage.Play].
//
// # Invariants
//
//   - A stage never accesses a cluster: its client ends in memory.
//   - The passes are the manager's own, from the registry's list of kinds. There is no second planner.
//   - A pod that was not ready when it was read, and that is not touched afterwards, stays as it is. Nothing
//     is promised about it.
//   - The stage has its own clock. Time passes only when nothing else can happen, so each wave of a rollout
//     has the earliest time at which it can begin.
package rehearsal
