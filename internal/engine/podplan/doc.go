// Package podplan contains what the plans of all workloads have in common whose pods are made from one
// template: which revision the template is and which one each pod carries, how a pod can reach another
// revision and whether it may do so now, what happens to updates under way, what a new pod looks like, which
// images are pulled ahead, and the messages for all of this.
//
// A kind makes a [Workload] of its object and a [Snapshot] of what the caches hold, and has a [Planner],
// which decides into a [Plan]. In this order:
//
//  1. [Planner.DetermineRevisions] finds or makes the update revision and the current one;
//  2. [Planner.Observe] examines each active pod; the kind decides about the others, with [Planner.Decide];
//  3. [Planner.DecideModes] finds out how each old pod can reach the update revision, and
//     [Planner.PreDownload] which images to pull ahead;
//  4. the kind creates pods with [Planner.NewPod], deletes some, or moves the next ones with
//     [Planner.MoveTo], as far as a [Budget] allows;
//  5. [Planner.Refresh] looks after all pods that are not acted on;
//  6. [Planner.Conclude] completes the plan with one verdict for every pod.
//
// Two rules hold. An available pod is taken away only while more pods are available than the budget requires.
// A pod gets at most one action per plan, and if it gets none, a human-readable reason.
package podplan
