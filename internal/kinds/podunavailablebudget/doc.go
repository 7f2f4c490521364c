// Package podunavailablebudget holds the rules of PodUnavailableBudgets (docs/spec/protection.md): how many
// pods of a set may be out of service at once, for whatever reason. The status of a budget says how many more
// pods may be disrupted now. Every disruption is booked there first: by the pod webhooks for all clients, and
// by our own controllers for themselves, before they touch the pod.
//
//   - [Rules] are the parts of a budget that are read for each pod, compiled once.
//   - [Why] returns why a pod is not in service, and [Free] whether a pod may be disrupted without a booking.
//   - [Ledger] is the status of one budget while pods are booked in it. A booking counts only if it is
//     written to exactly the version of the budget that the ledger was made from
//     (internal/reconcile/booking).
//   - [Make] counts: it computes the status that the budget should have from a [Snapshot], which has the
//     covered pods and their controllers. It is a pure function. Booked pods count as out of service until
//     the caches show that they are.
//
// # Invariants
//
//   - Bookings never lower the number of covered pods in service below the desired number, however many
//     managers book, and even if their caches are stale, as long as that is for less than the life of a
//     booking.
//   - One disruption is charged once: a pod that is booked already is not booked again, unless it is a later
//     pod of the same name.
//   - Nothing is refused for a pod that is out of service already, or when the workloads that a budget counts
//     are gone.
//   - A budget covers no pod of another namespace.
//   - The number of bookings of a budget is bounded by [MaxBookings].
package podunavailablebudget
