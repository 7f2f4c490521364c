package workloadspread

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// StatusOn is the status of the WorkloadSpread, which may be newer than the one that was planned for, with
// the bookings in it, but must be of the same generation (WS-150 to WS-157, WS-170 to WS-177).
func (p *Plan) StatusOn(newest *appsv1beta1.WorkloadSpread) StatusChange {
	var change StatusChange
	look := func(at time.Time, because string) {
		if !at.IsZero() && (change.Again.IsZero() || at.Before(change.Again)) {
			change.Again, change.because = at, because
		}
	}
	now := p.snapshot.Now
	conditions := make([]*metav1.Condition, len(p.quotas))
	for i, q := range p.quotas {
		if p.patience == 0 {
			continue
		}
		c, recovered, until := nextCondition(Schedulable(statusAt(newest.Status.SubsetStatuses, i, q.Name)),
			i == len(p.quotas)-1, p.stuck[i], p.patience, p.snapshot.Window, now)
		conditions[i] = &c
		if recovered {
			change.Recovered = append(change.Recovered, q.Name)
		}
		look(until, "subset "+q.Name+" is not passed over any more")
	}

	list := func(before []appsv1beta1.WorkloadSpreadSubsetStatus, version string) Counted {
		counted := p.tally.count(p.quotas, before, version)
		for i := range counted.Subsets {
			counted.Subsets[i].Conditions = withCondition(counted.Subsets[i].Conditions, conditions[i])
		}
		look(counted.Next, "a booking expires")
		return counted
	}
	status := appsv1beta1.WorkloadSpreadStatus{ObservedGeneration: p.Spread.Generation}
	status.SubsetStatuses = list(newest.Status.SubsetStatuses, AllVersions).Subsets
	present := sets.New[string]()
	for _, m := range p.members {
		present.Insert(m.version)
	}

	for _, version := range sets.List(sets.KeySet(newest.Status.VersionedSubsetStatuses).Union(present)) {
		counted := list(newest.Status.VersionedSubsetStatuses[version], version)
		change.Lost = append(change.Lost, counted.Lost...)
		if !present.Has(version) && !inUse(counted.Subsets) {
			continue // WS-155; a list that begins anew takes its conditions from the overall one
		}
		if status.VersionedSubsetStatuses == nil {
			status.VersionedSubsetStatuses = map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{}
		}
		status.VersionedSubsetStatuses[version] = counted.Subsets
	}

	change.Status = status
	return change
}

// inUse tells whether a list has pods or bookings.
func inUse(list []appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	return slices.ContainsFunc(list, func(s appsv1beta1.WorkloadSpreadSubsetStatus) bool {
		return s.Replicas > 0 || len(s.CreatingPods) > 0 || len(s.DeletingPods) > 0
	})
}

func versionsOf(lists map[string][]appsv1beta1.WorkloadSpreadSubsetStatus) []string {
	return slices.Sorted(maps.Keys(lists))
}
