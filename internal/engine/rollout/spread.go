package rollout

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Rank sets the spread rank of the pods: the higher it is, the more pods are in the same place as the pod
// (CS-145). Without topology keys the place is the node (CS-150). Otherwise it is the domains of the keys,
// one key for each spread constraint (CS-151). nodeLabel returns a label of a node, or false if the node or
// the label does not exist; it is called once for each node and key. A pod without a place has rank 0.
func Rank(pods []Candidate, topologyKeys []string, nodeLabel func(node, key string) (string, bool)) {
	for i := range pods {
		pods[i].Rank = 0
	}

	order := sorted(pods, byRemovalWhateverAvailable)
	nodes := topologyOf(pods, func(node string) (string, bool) { return node, true })
	nodes.each(order, func(pod, behind int) { pods[pod].Rank = float64(behind) })
	if len(topologyKeys) == 0 {
		return
	}

	orderWithRank := slices.Clone(order)
	for _, s := range orderWithRank {
		s.rank, pods[s.index].Rank = pods[s.index].Rank, 0
	}

	slices.SortFunc(orderWithRank, byRemovalWhateverAvailable)
	for _, key := range topologyKeys {
		domains := topologyOf(pods, func(node string) (string, bool) { return nodeLabel(node, key) })
		weight := math.Log(float64(len(domains.sizes) + 2))
		within := orderWithRank
		if key == corev1.LabelHostname {
			within = order
		}
		domains.each(within, func(pod, behind int) { pods[pod].Rank += float64(behind+1) * weight })
	}
}

// nowhere is the domain number of pods that are in no domain.
const nowhere = -1

// topology numbers the domains that contain pods.
type topology struct {
	// of is the domain of each pod, or nowhere.
	of []int
	// sizes is the number of pods in each domain.
	sizes []int
}

func topologyOf(pods []Candidate, domainOf func(node string) (string, bool)) topology {
	t := topology{of: make([]int, len(pods))}
	nodes, domains := map[string]int{"": nowhere}, map[string]int{}
	for i, c := range pods {
		number, ok := nodes[c.Pod.Spec.NodeName]
		if !ok {
			number = nowhere
			if domain, stands := domainOf(c.Pod.Spec.NodeName); stands {
				if number, ok = domains[domain]; !ok {
					number = len(domains)
					domains[domain] = number
					t.sizes = append(t.sizes, 0)
				}
			}
			nodes[c.Pod.Spec.NodeName] = number
		}
		if t.of[i] = number; number != nowhere {
			t.sizes[number]++
		}
	}

	return t
}

// each visits the pods in order; behind is the number of later pods in the same domain.
func (t topology) each(order []*standing, visit func(pod, behind int)) {
	left := slices.Clone(t.sizes)
	for _, s := range order {
		if domain := t.of[s.index]; domain != nowhere {
			left[domain]--
			visit(s.index, left[domain])
		}
	}
}
