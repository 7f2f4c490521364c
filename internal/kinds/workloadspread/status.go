package workloadspread

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// StatusOn returns the status to be written to newest, including the bookings in it. newest may be newer than
// the WorkloadSpread that was planned for, but must be of the same generation (WS-150 to WS-157, WS-170 to
// WS-177).
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
	present := p.versions()

	for _, version := range sets.List(sets.KeySet(newest.Status.VersionedSubsetStatuses).Union(present)) {
		counted := list(newest.Status.VersionedSubsetStatuses[version], version)
		change.Lost = append(change.Lost, counted.Lost...)
		if !present.Has(version) && !inUse(counted.Subsets) {
			continue // a list that begins anew takes its conditions from the overall one
		}
		if status.VersionedSubsetStatuses == nil {
			status.VersionedSubsetStatuses = map[string][]appsv1beta1.WorkloadSpreadSubsetStatus{}
		}
		status.VersionedSubsetStatuses[version] = counted.Subsets
	}

	change.Status = status
	return change
}

// versions returns the versions of the pods.
func (p *Plan) versions() sets.Set[string] {
	present := sets.New[string]()
	for _, m := range p.members {
		present.Insert(m.version)
	}
	return present
}

// leastSize is how many bytes of a status a subset of a version takes at least.
const leastSize = len(`{"name":"","replicas":0,"missingReplicas":0},`)

// tooLarge returns an error if the status, which has a list of all subsets for each version, cannot be written
// however short the lists are. They are not made then (WS-154).
func (p *Plan) tooLarge() error {
	versions := len(p.versions())
	if (1+versions)*len(p.quotas) <= statusMost/leastSize {
		return nil
	}
	return fmt.Errorf("a status cannot hold %s for each of %s: give the WorkloadSpread fewer subsets",
		wording.Count(len(p.quotas), "subset"), wording.Count(versions, "version"))
}

// inUse reports whether a list has pods or bookings.
func inUse(list []appsv1beta1.WorkloadSpreadSubsetStatus) bool {
	return slices.ContainsFunc(list, func(s appsv1beta1.WorkloadSpreadSubsetStatus) bool {
		return s.Replicas > 0 || len(s.CreatingPods) > 0 || len(s.DeletingPods) > 0
	})
}

func versionsOf(lists map[string][]appsv1beta1.WorkloadSpreadSubsetStatus) []string {
	return slices.Sorted(maps.Keys(lists))
}
