// Package workloadspread spreads the pods of a workload over groups of nodes (docs/spec/workload-spread.md).
//
// Decisions are made in two places. The pod webhooks choose a subset for each new pod, book it in the status,
// and book deletions (book.go and ledger.go). The controller counts the pods that exist, adopts pods that
// were created before the WorkloadSpread, ranks pods for scale-in, and gives up pods that cannot be scheduled
// (plan.go, a pure function from snapshot to plan). Package controller reads the workload, as a Target, for
// both, and writes what they decided.
//
// Invariants:
//   - The pods in a subset and those booked for it never exceed its quota, however many managers serve
//     webhooks, because each booking is guarded by the resourceVersion that the decision was made on.
//   - A pod is injected only after its booking is written.
//   - The controller forgets a booking when it sees the pod, or after a timeout. The webhooks only settle
//     bookings that it has not counted for a long time.
//   - Nothing is written at rest.
package workloadspread
