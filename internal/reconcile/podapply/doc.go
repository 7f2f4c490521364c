// Package podapply carries out the plans of workloads whose pods are made from one template (package
// podplan): first revisions, then image pull jobs and pods, in one stream of requests. It remembers the
// outcome for the next pass.
//
// A kind of workloads declares what it does its own way as a [Kind]; [Controller] is the loop of all of them.
// The kind's Apply calls the methods of the [Execution] in the order that it needs, with its own writes in
// between; the outcome is in the [Result]. The [Memory] of each workload holds back what failed a moment ago,
// and reports to users what the workload waits for.
package podapply
