package rollout

// Census counts the active pods of a workload, divided by what matters for scaling. New are those of the
// update revision, Old are all others.
type Census struct {
	Old, New Group
	// OneRevision is true if the current and the update revision are the same.
	OneRevision bool
	// Rollback is true if a raised partition moves pods back (gate CloneSetPartitionRollback, CS-098).
	Rollback bool
	// ExcludePreparingDelete is true if pods that wait for their preDelete hook do not count as present
	// (CS-116).
	ExcludePreparingDelete bool
	// Recreate counts the old pods that can reach the update revision only by being recreated (CS-102).
	Recreate int
	// InPlace counts the old pods that are unavailable for a while when they are updated in place, without
	// those that are about to be deleted.
	InPlace int
	// Stale counts the old pods that are unavailable for a while when they are repaired, because they have
	// images or quantities of another revision (IPU-326).
	Stale int
}

// Group counts the active pods of one revision, or of all old ones.
type Group struct {
	// Total counts all pods.
	Total int
	// PreparingDelete counts the pods that wait for their preDelete hook (pd).
	PreparingDelete int
	// Specified counts the pods that are specified for deletion and do not prepare it yet (sd).
	Specified int
	// Unavailable counts the pods that are unavailable and neither of the above (na).
	Unavailable int
}

// Scale is the scaling to do. At most one of Create and Remove is positive.
type Scale struct {
	// Surge is the number of pods wanted above the replicas; SurgeOld is how many of them are of the old
	// revision.
	Surge, SurgeOld int
	// Missing is how many pods are missing. Create is how many of them may be created now, and CreateOld how
	// many of those are created at the old revision.
	Missing, Create, CreateOld int
	// Remove is how many pods, none of them specified, are too many; RemoveOld is how many of them are of the
	// old revision.
	Remove, RemoveOld int
	// Unavailable is the number of pods that are unavailable or about to be deleted (T).
	Unavailable int
}

// difference returns how many old and new pods are too many (positive) or too few (negative). more is added
// to the wanted number of new pods.
func difference(c Census, l Limits, more int) (old, new int) {
	old = c.Old.Total - c.Old.PreparingDelete - l.Partition
	new = c.New.Total - c.New.PreparingDelete - (l.Replicas - l.Partition) - more
	if c.OneRevision || !c.Rollback {
		old, new = max(old, 0), min(new, 0)
	}
	return old, new
}

// ToMove returns how many pods have to change their revision: a positive number from old to new, a negative
// one back (CS-120). A pod that is specified for deletion does not count as moved already, because another
// pod replaces it. Otherwise, a replacement of the other revision that is not ready would never be updated,
// and the two pods would wait for each other forever.
func ToMove(c Census, l Limits) int {
	if toNew := c.Old.Total-c.Old.PreparingDelete > l.Partition; toNew {
		c.New.Total -= c.New.Specified
	} else {
		c.Old.Total -= c.Old.Specified
	}

	old, _ := difference(c, l, 0)
	// Surge pods are additional new pods: they must not count in place of the last old ones.
	old, new := difference(c, l, min(inPlaceSurge(c, l, old), l.MaxSurge))
	switch {
	case old > 0 && new > 0 || old < 0 && new < 0:
		return 0 // scaling handles pods of both revisions that are too many or too few
	case abs(old) <= abs(new):
		return old
	}
	return -new
}

// ComputeScale computes surge, creation and removal (CS-100 to 114).
func ComputeScale(c Census, l Limits) Scale {
	s := Scale{}
	specified := c.Old.Specified + c.New.Specified
	preparing := c.Old.PreparingDelete + c.New.PreparingDelete
	total := c.Old.Total + c.New.Total
	s.Unavailable = preparing + c.Old.Unavailable + c.New.Unavailable
	s.Surge, s.SurgeOld = surge(c, l, s.Unavailable)

	present, presentOld := total, c.Old.Total
	if c.ExcludePreparingDelete {
		present, presentOld = total-preparing, c.Old.Total-c.Old.PreparingDelete
	}

	wanted, wantedOld := l.Replicas+s.Surge, l.Partition+s.SurgeOld
	if s.Missing = max(wanted-present, 0); s.Missing > 0 {
		s.Create = min(s.Missing, max(l.ScaleMaxUnavailable-s.Unavailable, 0))
		s.CreateOld = min(s.Create, max(wantedOld-presentOld, 0))
	}
	if s.Remove = max(present-specified-wanted, 0); s.Remove > 0 {
		s.RemoveOld = min(max(presentOld-c.Old.Specified-wantedOld, 0), s.Remove)
	}

	return s
}

// inPlaceSurge returns how many surge pods updates in place should have. If no pod may be unavailable, it is
// one for each pod that is still to be updated or repaired, so that these need not be deleted. Otherwise it
// is 0.
func inPlaceSurge(c Census, l Limits, old int) int {
	if l.MaxUnavailable > 0 || l.MaxSurge == 0 {
		return 0
	}
	// Specified pods are replaced, and have their own surge.
	return max(min(old-c.Old.Specified, c.InPlace), c.Stale, 0)
}

// surge returns the number of surge pods, and how many of them are of the old revision.
func surge(c Census, l Limits, unavailable int) (total, old int) {
	if l.MaxSurge <= 0 {
		return 0, 0
	}

	specified := c.Old.Specified + c.New.Specified
	deletion := min(max(unavailable+specified-l.MaxUnavailable, 0), specified)
	diffOld, diffNew := difference(c, l, 0)

	update := 0
	if (diffOld > 0 && diffNew < 0) || (diffOld < 0 && diffNew > 0) {
		update = min(abs(diffOld), abs(diffNew))
		switch {
		case l.MaxUnavailable >= 1:
			update = min(update, c.Recreate)
		case diffOld > 0: // nothing may be unavailable, so pods updated in place need a surge, too
			update = min(update, c.Recreate+c.InPlace)
		}
	}

	update = max(update, inPlaceSurge(c, l, diffOld))

	if deletion >= update {
		total = min(deletion, l.MaxSurge)
		return total, min(max(deletion-c.New.Specified, 0), total)
	}

	total = min(update, l.MaxSurge)
	if diffOld < 0 {
		return total, total
	}

	return total, 0
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
