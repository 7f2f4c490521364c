// Package advancedcronjob decides what an AdvancedCronJob does next. At each time of its schedule it creates
// a Job, a BroadcastJob or an ImageListPullJob, which is called its child (ACJ-001).
//
// # Types
//
// A [Child] describes the run of a child of any kind: whether it is active, succeeded or failed, when it
// started, and its nominal time. A [Snapshot] is the AdvancedCronJob with its children and the time. [Make]
// turns it into a [Plan]: the status to write first, the children to release, those to delete because of
// history limits, and either a [Run] to begin or the [Reason] why there is none, and when to look again.
// [Validate] and [Default] validate and complete what users write.
//
// # Which runs were handled
//
// The last handled time is the later of status.lastScheduleTime and the nominal times of children that have
// passed (ACJ-053). A run is due if the schedule has a time after it (ACJ-051, ACJ-052). Each run must begin
// once, whatever crashes between two writes and whoever deletes children:
//
//   - The name of a child is derived from its time, so that no run has two children at once (ACJ-071,
//     ACJ-072).
//   - A child is created with a finalizer, pub.UnrecordedRun. The finalizer is removed when the status with
//     the child's time is stored. So a child that ends and is deleted before its run was recorded still
//     exists, and shows that the run took place.
//   - status.lastScheduleTime never goes back (ACJ-101).
//
// # Invariants
//
//   - At most one child is created in a pass, and none while the object is paused or being deleted.
//   - No run begins before the creation of the object, ahead of its time, or after a later one of its
//     schedule.
//   - History limits delete only finished children, and only once their run is recorded. Only active children
//     are replaced.
//   - If nothing changes, plans between two times of the schedule write nothing.
package advancedcronjob
