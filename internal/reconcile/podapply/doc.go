// Package podapply carries out the plans of workloads whose pods are made from one template (package
// podplan): first revisions, then image pull jobs and pods, in one stream of requests. It remembers the
// outcome for the next pass.
//
// A kind's controller creates an [Applier] once and calls [Applier.To] for each plan. It then calls the
// methods of the [Application] in the order that it needs, with its own writes in between; the outcome is in
// the [Result]. A [Memory] for each workload holds back what failed a moment ago, and reports to users what
// the workload waits for.
package podapply
