package workloadspread

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/engine/rollout"
)

// unmatchedCost returns the deletion cost of pods in no subset, which is the lowest of all.
func unmatchedCost(subsets int) int { return -100 * (subsets + 1) }

// costs returns the deletion costs of the active pods of one version in a subset, in the order of pods.
// latest reports that it is the workload's latest version; for all others the order of the subsets is
// reversed.
func costs(pods []*corev1.Pod, quota int32, index, subsets int, latest bool) []int {
	if !latest {
		index = subsets - 1 - index
	}
	within, beyond := 100*(subsets-index), -100*(index+1)

	all := make([]int, len(pods))
	for i := range all {
		all[i] = within
	}

	surplus := len(pods) - int(quota)
	if quota == Unlimited || surplus <= 0 {
		return all
	}
	for _, i := range removalOrder(pods)[:surplus] {
		all[i] = beyond
	}
	return all
}

// removalOrder returns the indices of pods in the order in which surplus pods are removed. It does not depend
// on the deletion costs that are computed from it.
func removalOrder(pods []*corev1.Pod) []int {
	candidates := make([]rollout.Candidate, len(pods))
	indices := make(map[*corev1.Pod]int, len(pods))
	for i, pod := range pods {
		candidates[i] = rollout.Candidate{Pod: pod, Ready: readiness.Ready(pod)}
		indices[pod] = i
	}

	order := make([]int, 0, len(pods))
	// The plain order, without the hooks of a workload.
	for _, c := range rollout.SortForSidecars(candidates, nil, nil, nil) {
		order = append(order, indices[c.Pod])
	}
	return order
}

func costText(cost int) string { return strconv.Itoa(cost) }
