package sidecarset

import (
	"fmt"

	"github.com/afloat-project/afloat/internal/engine/plural"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// limits are the user's numbers.
type limits struct {
	partition, maxUnavailable int
	// used is how much of maxUnavailable is taken: updated pods that are not consistent and ready, see also
	// count. down is how many of them are out of service, or about to be: the others are ready and wait for
	// resources alone.
	used, down int
}

// count adds the pods that may be unavailable because of an upgrade to what is not the latest any more.
// Without them, changing the SidecarSet in the middle of a rollout would double what is unavailable. Once
// upgraded they count anyway.
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

// String tells what is used for messages.
func (l *limits) String() string {
	if l.used > l.down {
		return fmt.Sprintf(
			"%s unavailable because of the upgrade or waiting for resources, maxUnavailable is %d",
			plural.Of(l.used, "pod"),
			l.maxUnavailable)
	}
	return fmt.Sprintf("%s unavailable because of the upgrade, maxUnavailable is %d",
		plural.Of(l.used, "pod"), l.maxUnavailable)
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

// inOrder sorts candidates by who is upgraded first.
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
