package sidecarset

import (
	"fmt"

	"github.com/afloat-project/afloat/internal/engine/rollout"
	"github.com/afloat-project/afloat/internal/engine/wording"
)

// limits are the user's numbers and how far they are used up.
type limits struct {
	partition, maxUnavailable int
	// used is how much of maxUnavailable is used up, by updated pods that are not consistent and ready, and
	// by those that count adds. down is how many of these pods are out of service or about to be. The others
	// are ready and wait only for resources.
	used, down int
}

// count adds pods that may be unavailable because of an upgrade to a spec that is no longer the latest.
// Without them, changing the SidecarSet in the middle of a rollout would double the number of unavailable
// pods. Once upgraded they count anyway.
func (l *limits) count(pods []*podInfo) {
	for _, pod := range pods {
		if pod.underway {
			l.add(pod)
		}
	}
}

func (l *limits) add(pod *podInfo) {
	l.used++
	if !pod.serves() {
		l.down++
	}
}

// String returns what is used up, for messages.
func (l *limits) String() string {
	if l.used > l.down {
		return fmt.Sprintf(
			"%s unavailable because of the upgrade or waiting for resources, maxUnavailable is %d",
			wording.Count(l.used, "pod"), l.maxUnavailable)
	}
	return fmt.Sprintf("%s unavailable because of the upgrade, maxUnavailable is %d",
		wording.Count(l.used, "pod"), l.maxUnavailable)
}

func (p *planner) limits() (limits, error) {
	l, strategy, total := limits{maxUnavailable: 1}, &p.in.Set.Spec.UpdateStrategy, len(p.matched)
	var err error
	if l.partition, err = rollout.Partition(strategy.Partition, total); err != nil {
		return l, err
	}
	if strategy.MaxUnavailable != nil {
		if l.maxUnavailable, err = rollout.Scaled(*strategy.MaxUnavailable, total, true); err != nil {
			return l, fmt.Errorf("maxUnavailable: %w", err)
		}
	}

	for _, pod := range p.matched {
		if pod.updated && !pod.available() {
			l.add(pod)
		}
	}

	return l, nil
}

// inOrder sorts candidates by the order in which they are upgraded.
func (p *planner) inOrder(candidates []*podInfo) []*podInfo {
	of := func(pods []*podInfo) []rollout.Candidate {
		list := make([]rollout.Candidate, len(pods))
		for i, pod := range pods {
			list[i] = rollout.Candidate{Pod: pod.Pod, Ready: pod.ready}
		}
		return list
	}
	byPod := make(map[any]*podInfo, len(candidates))
	for _, pod := range candidates {
		byPod[pod.Pod] = pod
	}

	strategy := &p.in.Set.Spec.UpdateStrategy
	sorted := make([]*podInfo, 0, len(candidates))
	for _, c := range rollout.SortForSidecars(of(candidates), of(p.matched), strategy.PriorityStrategy,
		strategy.ScatterStrategy) {
		sorted = append(sorted, byPod[c.Pod])
	}

	return sorted
}
