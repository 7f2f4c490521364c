// Package rehearsal plays what a manager would do, without a cluster: the kubectl plugin reads what a plan is
// made from with the user's own rights, puts it on a [Stage], and lets the same passes run there that run in
// the manager. What they write changes the stage alone.
//
// Two questions are answered so:
//
//   - Why: what would the next pass decide about each pod? One pass over the stage as it is; see [Stage.Ask].
//   - What if: which pods are touched, how, and in which waves, if an object becomes another one? The object
//     is replaced, and passes alternate with a kubelet that makes every pod ready that it is given; see
//     [Stage.Play].
//
// # Invariants
//
//   - A stage never reaches a cluster: its client ends in memory.
//   - The passes are those of the manager, of the registry's list of kinds. There is no second planner.
//   - A pod that was not ready when it was read, and that nobody touches since, stays as it is: nothing is
//     promised about it.
//   - Time is the stage's own. It passes when nothing else can happen, so that the waves of a rollout come
//     with the time that they take at least.
package rehearsal
