// Package podapply carries out the plans of workloads whose pods are made of one template (package podplan):
// revisions first, then image pull jobs and pods, in one stream of requests. What became of it is kept for
// the next pass.
//
// A kind's controller makes an [Applier] once, calls [Applier.To] for each plan, and the methods of the
// [Application] in the order that it needs, with what is its own in between; what was met is in the [Result].
// A [Memory] for each workload holds back what failed a moment ago, and tells the workload's users what it
// waits for.
package podapply
