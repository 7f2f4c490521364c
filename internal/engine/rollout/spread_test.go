package rollout

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
)

func on(node string) func(*Candidate) { return func(c *Candidate) { c.Pod.Spec.NodeName = node } }

// zoned knows nodes named "<zone>-<host>".
func zoned(node, key string) (string, bool) {
	switch key {
	case "zone":
		zone, _, ok := strings.Cut(node, "-")
		return zone, ok
	case corev1.LabelHostname:
		return node, true
	}
	return "", false
}

func ranks(pods []Candidate) map[string]float64 {
	got := map[string]float64{}
	for _, c := range pods {
		got[c.Pod.Name] = c.Rank
	}
	return got
}

func TestRank(t *testing.T) {
	ln := func(n float64) float64 { return math.Log(n) }
	hostname := corev1.LabelHostname
	tests := map[string]struct {
		pods []Candidate
		keys []string
		want map[string]float64
	}{
		"no pods": {nil, []string{"zone"}, map[string]float64{}},
		"CS-150 pods alone on their node are 0": {
			[]Candidate{candidate("a", on("x-1")), candidate("b", on("x-2"), rank(9))}, nil, map[string]float64{"a": 0, "b": 0}},
		"CS-150 k pods of a node: k-1 for the first, 0 for the last": {
			[]Candidate{candidate("a", on("x-1")), candidate("b", on("x-1"), notReady), candidate("c", on("x-1"), cost("-1")),
				candidate("d", on("x-1"), readySinceMinutes(1)), candidate("e", on("x-2"))},
			nil, map[string]float64{"b": 3, "c": 2, "d": 1, "a": 0, "e": 0}},
		"CS-150 by phase, restarts, age and name": {
			[]Candidate{candidate("a", on("x-1")), candidate("b", on("x-1")), candidate("c", on("x-1"), createdAfterMinutes(1)),
				candidate("d", on("x-1"), restarted(1)), candidate("e", on("x-1"), inPhase(corev1.PodUnknown)),
				candidate("f", on("x-1"), inPhase(corev1.PodPending))},
			nil, map[string]float64{"f": 5, "e": 4, "d": 3, "c": 2, "a": 1, "b": 0}},
		"CS-150 neither availability nor an earlier rank counts": {
			[]Candidate{candidate("a", on("x-1"), cost("-1")), candidate("b", on("x-1"), unavailable, rank(9))}, nil,
			map[string]float64{"a": 1, "b": 0}},
		"CS-150 pods on no node share none": {
			[]Candidate{candidate("a", unassigned), candidate("b", unassigned)}, nil, map[string]float64{"a": 0, "b": 0}},

		"CS-151 m-i times ln(domains+2)": {
			[]Candidate{candidate("a", on("x-1")), candidate("b", on("x-2")), candidate("c", on("x-3")), candidate("d", on("y-1"))},
			[]string{"zone"}, map[string]float64{"a": 3 * ln(4), "b": 2 * ln(4), "c": 1 * ln(4), "d": 1 * ln(4)}},
		"CS-151 the rank on the node orders within the domain, after the cost": {
			[]Candidate{candidate("a", on("x-1"), readySinceMinutes(9)), candidate("b", on("x-2")), candidate("c", on("x-2")),
				candidate("d", on("x-3"), cost("-1"))},
			[]string{"zone"}, map[string]float64{"d": 4 * ln(3), "b": 3 * ln(3), "a": 2 * ln(3), "c": 1 * ln(3)}},
		"CS-151 availability does not count": {
			[]Candidate{candidate("a", on("x-1")), candidate("b", on("x-2"), unavailable)}, []string{"zone"},
			map[string]float64{"a": 2 * ln(3), "b": 1 * ln(3)}},
		"CS-151 by hostname": {
			[]Candidate{candidate("a", on("x-1")), candidate("b", on("x-1")), candidate("c", on("y-1"))},
			[]string{hostname}, map[string]float64{"a": 2 * ln(4), "b": 1 * ln(4), "c": 1 * ln(4)}},
		"CS-151 ranks of several constraints add up": {
			[]Candidate{candidate("a", on("x-1")), candidate("b", on("x-1")), candidate("c", on("x-2")), candidate("d", on("y-1"))},
			[]string{"zone", hostname},
			map[string]float64{"a": 3*ln(4) + 2*ln(5), "b": 2*ln(4) + 1*ln(5), "c": 1*ln(4) + 1*ln(5), "d": 1*ln(4) + 1*ln(5)}},
		"CS-151 also of two with the same key": {
			[]Candidate{candidate("a", on("x-1"))}, []string{"zone", "zone"}, map[string]float64{"a": 2 * ln(3)}},
		"CS-151 nodes without the label or not found are skipped, the rank on the node is not used": {
			[]Candidate{candidate("a", on("lost")), candidate("b", on("lost")), candidate("c", on("x-1")), candidate("d", unassigned)},
			[]string{"zone", "rack"}, map[string]float64{"a": 0, "b": 0, "c": ln(3), "d": 0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time with ranks set
				before := names(tt.pods)
				Rank(tt.pods, tt.keys, zoned)
				if diff := cmp.Diff(tt.want, ranks(tt.pods), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
					t.Errorf("ranks of the pods (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(before, names(tt.pods)); diff != "" {
					t.Errorf("the pods were moved: %s", diff)
				}
				slices.Reverse(tt.pods) // CS-152: in any order of the input
			}
		})
	}
}

// CS-151: the domain of hostname is the label's value, not the node's name, which would give the opposite
// order here.
func TestRankByHostname(t *testing.T) {
	pods := []Candidate{candidate("a", on("n1"), readySinceMinutes(1)), candidate("b", on("n2")), candidate("c", on("n2"))}
	sameHost := func(string, string) (string, bool) { return "h", true }
	Rank(pods, []string{corev1.LabelHostname}, sameHost)
	if diff := cmp.Diff(map[string]float64{"a": 3 * math.Log(3), "b": 2 * math.Log(3), "c": math.Log(3)}, ranks(pods)); diff != "" {
		t.Errorf("ranks by hostname (-want +got):\n%s", diff)
	}
	Rank(pods, []string{"zone"}, sameHost)
	if diff := cmp.Diff(map[string]float64{"b": 3 * math.Log(3), "a": 2 * math.Log(3), "c": math.Log(3)}, ranks(pods)); diff != "" {
		t.Errorf("ranks by zone (-want +got):\n%s", diff)
	}
}

// CS-151: the labels of a node are looked up once for each key, however many pods it holds.
func TestRankAsksOncePerNode(t *testing.T) {
	asked := map[string]int{}
	pods := []Candidate{candidate("a", on("x-1")), candidate("b", on("x-1")), candidate("c", on("lost")), candidate("d", on("lost")),
		candidate("e", unassigned)}
	Rank(pods, []string{"zone", "rack"}, func(node, key string) (string, bool) {
		asked[node+" "+key]++
		return zoned(node, key)
	})
	if diff := cmp.Diff(map[string]int{"x-1 zone": 1, "x-1 rack": 1, "lost zone": 1, "lost rack": 1}, asked); diff != "" {
		t.Errorf("look-ups of labels of nodes (-want +got):\n%s", diff)
	}
}

// CS-280: with constraints on zone and hostname the zone with most pods shrinks first, and within it stacked
// nodes.
func TestScaleInWithSpreadConstraints(t *testing.T) {
	tests := map[string]struct {
		pods   map[string]string // by node
		remove int
		left   map[string]int
	}{
		"the stacked node of the large zone": {map[string]string{"a": "x-1", "b": "x-2", "c": "x-2", "d": "y-1"}, 1,
			map[string]int{"x-1": 1, "x-2": 1, "y-1": 1}},
		"then the large zone": {map[string]string{"a": "x-1", "b": "x-2", "c": "x-3", "d": "y-1"}, 1,
			map[string]int{"x": 2, "y": 1}},
		"until the zones are even": {map[string]string{"a": "x-1", "b": "x-2", "c": "x-3", "d": "x-4", "e": "y-1", "f": "y-2"}, 2,
			map[string]int{"x": 2, "y": 2}},
		"even zones: the stacked node": {map[string]string{"a": "x-1", "b": "x-2", "c": "y-1", "d": "y-1"}, 1,
			map[string]int{"x-1": 1, "x-2": 1, "y-1": 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var pods []Candidate
			for name, node := range tt.pods {
				pods = append(pods, candidate(name, on(node)))
			}
			Rank(pods, []string{"zone", corev1.LabelHostname}, zoned)
			slices.SortFunc(pods, ByRemoval)
			left := map[string]int{}
			for _, c := range pods[tt.remove:] {
				for place := range tt.left {
					if strings.HasPrefix(c.Pod.Spec.NodeName, place) {
						left[place]++
					}
				}
			}
			if diff := cmp.Diff(tt.left, left); diff != "" {
				t.Errorf("pods that are left in each place (-want +got):\n%s", diff)
			}
		})
	}
}
