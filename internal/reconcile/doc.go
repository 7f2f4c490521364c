// Package reconcile is what the controllers of all kinds build on: it reads, writes, keeps state between
// passes, records events and requeues. A kind adds what it reads, its planner, and how its plan becomes
// writes.
//
// # Reading one's own writes
//
// A plan must be made from a state that includes all earlier writes, or they are made twice. The caches show
// a write only later. [OwnWrites] therefore keeps the answer to each write, which is the newest version of
// its object, and [Overlay] lays it over the caches until they show it themselves. So the next plan need not
// wait for the watch (docs/decisions/0004). These rules hold:
//
//   - Of two versions of an object the newer one counts, wherever it comes from.
//   - A created object exists until the caches show it. If they do not show it within [DoubtAfter], one live
//     read finds out whether it is gone again.
//   - A deleted object is terminating, or gone if nothing can hold it, until the caches show that.
//   - A write whose answer was lost is in doubt. No plan is made until one live read has found out what
//     became of it.
//
// # Writing
//
// All writes of all kinds go through a [Writer], which is bound to one owner. Its comment defines what
// happens after an error.
//
// # A pass
//
// A [Controller] makes the passes over the objects of a kind. It begins each with a [Session], for which it
// settles own writes before it reads the object. A pass ends with [Session.WriteStatus], which writes the
// status unless that may wait. All controllers are set up with [Options].
//
// # Invariants
//
//   - No write goes without a guard: patches and deletions carry the UID and resourceVersion of the version
//     that was decided about.
//   - Nothing is written twice because a cache lags, and nothing waits for a cache forever.
//   - What is remembered about an owner is dropped with it, and is bounded by the number of its objects.
package reconcile
