// Package workloadspread spreads the pods of a workload over groups of nodes (docs/spec/workload-spread.md).
//
// Two parts decide. The pod webhooks choose a subset for each pod that is created and book it in the status,
// and book deletions (book.go and ledger.go). The controller counts what is really there, adopts pods that
// were there before, ranks the pods for scale-in, and gives up those that cannot be scheduled (plan.go, a
// pure function from snapshot to plan). Package controller reads the workload, as a Target, for both, and
// writes what they decided.
//
// Invariants: what is booked for a subset and what is in it never exceed its quota, whatever number of
// managers serve webhooks, since each booking is a write guarded by the version that was decided on; a pod is
// injected only after its booking is written; the controller alone forgets bookings, by seeing the pod or by
// time, and the webhooks count those in that it has not forgotten for long; at rest nothing is written.
package workloadspread
