// Package advancedcronjob decides what an AdvancedCronJob does next: it creates a Job, a BroadcastJob or an
// ImageListPullJob, its child, at each time of a schedule (ACJ-001).
//
// # Types
//
// A [Child] is what a child of any kind says of its run: active, succeeded or failed, when it started, and
// its nominal time. A [Snapshot] is the AdvancedCronJob with its children and the time. [Make] makes a [Plan]
// of it: the status to be written first, what may be let go, what history has too much of, and at most one
// [Run] to begin, or the [Reason] why there is none, and when to look again. [Validate] and [Default] judge
// and complete what users write.
//
// # What was handled
//
// The last handled time is the later of status.lastScheduleTime and the nominal times of children that have
// come (ACJ-053). A run is due if the schedule has a time after it (ACJ-051, ACJ-052). What must hold is that
// each run begins once, whatever dies between two writes and whoever deletes children:
//
//   - The name of a child is made of its time, so that no run has two children at once (ACJ-071, ACJ-072).
//   - A child is created with a finalizer, pub.UnrecordedRun. It is let go when the status that has its time
//     is stored. So a child that ends and is deleted at once, before its run was noted, is still there to
//     tell of it.
//   - status.lastScheduleTime never goes back (ACJ-101).
//
// # Invariants
//
//   - At most one child is created in a pass, and none while the object is paused or being deleted.
//   - No run begins before the creation of the object, ahead of its time, or after a later one of its
//     schedule.
//   - Only finished children are deleted by history limits, and only once their run is noted; only active
//     ones are replaced.
//   - The plan for an unchanged world between two times writes nothing.
package advancedcronjob
