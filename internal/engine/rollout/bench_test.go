package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/afloat-project/afloat/api/pub"
)

const manyPods = 10_000

// fleet returns pods on nodes of four zones, some of each kind.
func fleet(n int) []Candidate {
	random := rand.New(rand.NewPCG(1, 2))
	pods := make([]Candidate, 0, n)
	for range n {
		c := candidate(fmt.Sprintf("web-%05x", random.Uint32()), readySinceMinutes(random.IntN(24*60)))
		c.Pod.Spec.NodeName = fmt.Sprintf("%d-%d", random.IntN(4), random.IntN(n/80))
		c.Pod.Labels["app"], c.Pod.Labels["ordinal"] = "web", fmt.Sprintf("web-%d", random.IntN(n))
		c.Pod.Labels["role"] = []string{"leader", "follower", "follower", "observer"}[random.IntN(4)]
		if random.IntN(10) == 0 {
			notReady(&c)
		}
		pods = append(pods, c)
	}
	return pods
}

func BenchmarkSortForUpdate(b *testing.B) {
	pods := fleet(manyPods)
	leaders := selecting("role", "leader")
	scatter := []pub.UpdateScatterTerm{{Key: "role", Value: "leader"}, {Key: "role", Value: "observer"}}
	for name, priority := range map[string]*pub.UpdatePriorityStrategy{
		"base": nil,
		"weight": {WeightPriority: []pub.UpdatePriorityWeightTerm{{Weight: 50, MatchSelector: leaders},
			{Weight: 10, MatchSelector: selecting("app", "web")}}},
		"order": {OrderPriority: []pub.UpdatePriorityOrderTerm{{OrderedKey: "ordinal"}}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				SortForUpdate(pods, pods, priority, scatter)
			}
		})
	}
}

func BenchmarkRank(b *testing.B) {
	pods := fleet(manyPods)
	for b.Loop() {
		Rank(pods, []string{"zone", "kubernetes.io/hostname"}, zoned)
	}
}

func BenchmarkByRemoval(b *testing.B) {
	pods := fleet(manyPods)
	for b.Loop() {
		slices.SortFunc(slices.Clone(pods), ByRemoval)
	}
}
