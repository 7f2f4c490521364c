// Package ephemeraljob plans EphemeralJobs, which add ephemeral containers to running pods and collect their
// results (EJ-001).
//
// A pod that has a container of the job is treated. Which job added a container is recorded on the pod, in
// the variable KRUISE_EJOB_ID of the container (EJ-018), so that a manager may die between any two writes and
// another one continues. NewPlan decides from the job, its pods and the time, in this order:
//
//  1. A job that is being deleted loses its finalizer, whatever else is wrong.
//  2. A finished job is deleted after its time to live.
//  3. If nothing can be done, because the template or the selector is empty, or the API server does not
//     support ephemeral containers, the phase is Error.
//  4. Treated pods are judged by the states of their containers, and those that are gone are counted
//     (Ledger).
//  5. The targets are the oldest pods that are not treated, as many as replicas allows, without those that
//     have a container of the same name from somebody else.
//  6. The job ends if all targets are done or its deadline has passed.
//  7. Otherwise the next targets are treated, as many as parallelism allows.
//
// The result of a pod that is gone is only known from the numbers of the status. The Ledger combines both: it
// knows which treated pods were seen last and with what result, and counts each that vanishes, once. A
// manager that has just started has seen none. The pods by which the numbers of the status exceed the
// existing pods are gone. Of these, as many have succeeded as the status has more successes than the
// existing pods, and the rest count as failed, since nobody saw them succeed. So what was counted as
// succeeded stays so, and memory is bounded by the treated pods that exist. For this, each treated pod is in
// one of the four numbers: pods of which nothing is known yet count as waiting.
//
// Invariants: the planner never causes more pods than parallelism to have unfinished containers of the job;
// no container of anybody else is changed; no pod is treated twice; what succeeded stays counted; a finished
// job is not judged again; nothing is written at rest.
package ephemeraljob
