// Package ephemeraljob decides about EphemeralJobs, which add ephemeral containers to running pods and
// collect how they end (EJ-001).
//
// A pod that has a container of the job is treated. What a pod was treated with is on the pod, in the
// variable KRUISE_EJOB_ID of the container (EJ-018), so that a manager may die between any two writes and
// another one goes on. NewPlan decides from the job, its pods and the time, in this order:
//
//  1. being deleted: let go of the finalizer, whatever else is broken;
//  2. finished: after the time to live, delete;
//  3. nothing can be done, since the template or the selector says nothing or the API server knows no
//     ephemeral containers: phase Error;
//  4. judge each treated pod by the states of its containers, and count those that are gone (Ledger);
//  5. fill up the targets with the oldest pods that are not treated, as far as replicas goes, without those
//     that have a container of such a name from somebody else;
//  6. end the job if all targets are done or its time is over;
//  7. else treat the next targets, as far as parallelism goes.
//
// What a pod that is gone has come to is nowhere but in the numbers of the status. The Ledger joins both: it
// knows which pods were seen last and with what result, and counts each that vanishes, once. A manager that
// starts has seen none; it takes what the numbers of the status have more than the pods that are there for
// pods that are gone. Of them as many have succeeded as the status says more, and the rest counts as failed,
// since nobody saw it succeed. So what was counted as succeeded stays so, and memory is bounded by the
// treated pods that exist. Therefore each treated pod is in one of the four numbers: those of which nothing
// is known yet count as waiting.
//
// Invariants: no more pods than parallelism have unfinished containers of the job by the planner's doing; no
// container of anybody else is changed; no pod is treated twice; what succeeded stays counted; a finished job
// is not judged again; nothing is written at rest.
package ephemeraljob
