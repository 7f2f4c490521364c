// Package podplan is what the plans of all workloads have in common whose pods are made of one template:
// which revision the template is and which one each pod carries, how a pod can reach another one and whether
// it may now, what becomes of updates under way, what a new pod looks like, which images are pulled ahead,
// and the words for all of it.
//
// A kind makes a [Workload] of its object and a [Snapshot] of what the caches hold, and embeds a [Planner],
// which decides into a [Plan]. In this order:
//
//  1. [Planner.DetermineRevisions] finds or makes the update revision and the current one;
//  2. [Planner.Observe] takes up each active pod; the kind decides about the others, with [Planner.Decide];
//  3. [Planner.DecideModes] finds out how each old pod can reach the update revision, and
//     [Planner.PreDownload] which images to pull ahead;
//  4. the kind creates pods with [Planner.NewPod], deletes some, or moves the next ones with
//     [Planner.MoveTo], as far as a [Budget] goes;
//  5. [Planner.Refresh] looks after all pods that are not acted on;
//  6. [Planner.Conclude] hands over one verdict for every pod.
//
// Two rules hold: an available pod is taken away only while more than the budget asks for are available; and
// a pod gets at most one action per plan, and if it gets none a reason that a person can read.
package podplan
