// Package podunavailablebudget holds the rules of PodUnavailableBudgets (docs/spec/protection.md): how many
// pods of a set may be taken out of service at once, by whatever way. A budget's status says how many more
// may go now. Whoever takes a pod out of service books it there first: the webhooks of pods for everybody,
// the controllers of our own workloads for themselves, before they touch the pod.
//
//   - [Rules] are what of a budget is read for each pod, compiled once.
//   - [Why] says why a pod is not in service; [Rules.Free] which operations need no booking.
//   - [Ledger] is the status of one budget while pods are booked in it. A booking counts only if it is
//     written for exactly the version of the budget that the ledger was made from
//     (internal/reconcile/booking).
//   - [Make] counts: it makes of a [Snapshot], the covered pods and what controls them, the status that the
//     budget shall have. It is a pure function. Bookings of pods of which the caches do not show yet that
//     they left service count as out of service.
//
// # Invariants
//
//   - The number of covered pods in service never falls below the desired number by what was booked, whatever
//     number of managers book, and however far their caches are behind by less than the life of a booking.
//   - One disruption is charged once: who is booked already is not booked again, except as a pod of the same
//     name that came later.
//   - Nothing is refused about a pod that is out of service already, and nothing when the numbers of a budget
//     are gone with its workloads.
//   - A budget reaches no pod of another namespace.
//   - What a budget keeps is bounded: [MaxBookings] pods.
package podunavailablebudget
