// Package reconcile is the floor under all kinds: how a controller reads, writes, remembers, tells and comes
// back. A kind brings what it reads, its planner, and what its plan means in writes; everything else is here,
// once.
//
// # Reading one's own writes
//
// A plan must be made from a world that shows what was written before, or it is done twice. The caches show
// it later. [Own] therefore keeps the answer of each write, which is the newest version of its object, and
// [Overlay] lays it over what the caches hold, until they show it themselves. So the next plan need not wait
// for the watch (docs/decisions/0004). These rules hold:
//
//   - Of two versions of an object the newer one counts, whoever has it.
//   - An object that was created is there until the caches show it. If they do not for [DoubtAfter], one live
//     read tells whether it is gone again.
//   - An object that was deleted is going, or gone where nothing can hold it, until the caches show that.
//   - A write whose answer was lost is in doubt. One live read before the next plan tells what became of it;
//     no plan is made before.
//
// # Writing
//
// All writes of all kinds go through a [Writer], which is bound to one owner. Its comment says what becomes
// of an error.
//
// # A pass
//
// It begins with [Begin], which settles own writes before it reads the owner, and ends with
// [StatusThrottle.Write], which writes the status if that may not wait. What all controllers are set up with
// are [Options].
//
// # Invariants
//
//   - No write without a guard: patches and deletions carry UID and resourceVersion of the version that was
//     decided about.
//   - Nothing is written twice because a cache lags, and nothing waits for a cache for ever.
//   - What is remembered of an owner goes with it, and is bounded by its objects.
package reconcile
