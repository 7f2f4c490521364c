package rollout

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afloat-project/afloat/api/pub"
)

// row returns one pod for each letter, which is the value of its label "role"; pods for "." have none.
func row(letters string) []Candidate {
	var pods []Candidate
	for i, letter := range letters {
		c := candidate(fmt.Sprintf("pod-%03d", i))
		if letter != '.' {
			c.Pod.Labels["role"] = string(letter)
		}
		pods = append(pods, c)
	}
	return pods
}

func letters(pods []Candidate) string {
	var out strings.Builder
	for _, c := range pods {
		if role, ok := c.Pod.Labels["role"]; ok {
			out.WriteString(role)
		} else {
			out.WriteByte('.')
		}
	}
	return out.String()
}

func roles(values ...string) []pub.UpdateScatterTerm {
	var terms []pub.UpdateScatterTerm
	for _, value := range values {
		terms = append(terms, pub.UpdateScatterTerm{Key: "role", Value: value})
	}
	return terms
}

func TestScatter(t *testing.T) {
	tests := map[string]struct {
		candidates string
		// updated are the pods of the workload that are no candidates any more.
		updated string
		terms   []pub.UpdateScatterTerm
		want    string
	}{
		"no terms":                                     {"mm....", "", nil, "mm...."},
		"no candidates":                                {"", "mm..", roles("m"), ""},
		"CS-184 10 pods, 3 matching: 1, 6, 10":         {"mmm.......", "", roles("m"), "m....m...m"},
		"CS-184 wherever they stood":                   {"..m...m..m", "", roles("m"), "m....m...m"},
		"CS-184 one matching: no effect":               {"..m...", "", roles("m"), "..m..."},
		"CS-184 none matching: no effect":              {"......", "", roles("m"), "......"},
		"CS-184 one other: no effect":                  {"mm.mm", "", roles("m"), "mm.mm"},
		"CS-184 no other: no effect":                   {"mmm", "", roles("m"), "mmm"},
		"CS-184 two and two":                           {"..mm", "", roles("m"), "m..m"},
		"CS-184 more matching than others":             {"..mmmmmmm", "", roles("m"), "mmm.mmm.m"},
		"CS-184 group sizes rounded down, others left": {"mmmm.......", "", roles("m"), "m..m..m...m"},
		"CS-184 rounded down, matching left":           {"mmmmmmmm...", "", roles("m"), "mm.mm.mm.mm"},
		"CS-184 halves round up, the last group short": {"mmm...", "", roles("m"), "m..m.m"},
		"CS-184 rounded up, the last group empty":      {"mmmmm......", "", roles("m"), "m..m..m..mm"},
		"CS-184 another value is another pod":          {"nnmm", "", roles("m"), "mnnm"},
		"CS-184 an empty value is not an absent label": {"..mm", "", roles(""), "..mm"},

		"CS-185 the same density as all: as alone":         {"mm...", "m...", roles("m"), "m...m"},
		"CS-185 one group of the size in all":              {"mm...", "mm...", roles("m"), ".m..m"},
		"CS-185 others denser in all: as alone":            {"mm..", ".........", roles("m"), "m..m"},
		"CS-185 one matching updated: surplus ahead":       {"mm.......", "m", roles("m"), "...m....m"},
		"CS-185 one matching and one other":                {"mm......", "m.", roles("m"), "..m....m"},
		"CS-185 one matching and four others: on time":     {"mm...", "m....", roles("m"), "m...m"},
		"CS-185 matching left behind where others run out": {"mmmm.....", "m.", roles("m"), ".m..m..mm"},
		"CS-185 fewer matching than a group of them: last": {"mmm..", "mmmmmmmm.", roles("m"), "..mmm"},
		"CS-185 two groups of the size in all":             {"mmm......", "mm", roles("m"), "..m..m..m"},

		"CS-186 the most frequent term first":        {"aabbb....", "", roles("a", "b"), "ab.b...ba"},
		"CS-186 in whatever order they are given":    {"aabbb....", "", roles("b", "a"), "ab.b...ba"},
		"CS-186 equally frequent ones as given: a b": {"aabb....", "", roles("a", "b"), "ba....ab"},
		"CS-186 equally frequent ones as given: b a": {"aabb....", "", roles("b", "a"), "ab....ba"},
		"CS-186 terms matching nothing are skipped":  {"mmm.......", "", roles("x", "m", "y"), "m....m...m"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pods := row(tt.candidates + tt.updated)
			candidates := pods[:len(tt.candidates):len(tt.candidates)]
			if diff := cmp.Diff(tt.want, letters(Scatter(candidates, pods, tt.terms...))); diff != "" {
				t.Errorf("order of the scattered pods (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.candidates, letters(candidates)); diff != "" {
				t.Errorf("the candidates given were moved: %s", diff)
			}
		})
	}
}

// CS-184: matching pods stay in their order, and so do the others.
func TestScatterKeepsTheOrderOfEither(t *testing.T) {
	var matching, others []string
	for _, c := range Scatter(row("m..m.m.m.."), nil, roles("m")...) {
		if c.Pod.Labels["role"] == "m" {
			matching = append(matching, c.Pod.Name)
		} else {
			others = append(others, c.Pod.Name)
		}
	}
	if diff := cmp.Diff([]string{"pod-000", "pod-003", "pod-005", "pod-007"}, matching); diff != "" {
		t.Errorf("order of the matching pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"pod-001", "pod-002", "pod-004", "pod-006", "pod-008", "pod-009"}, others); diff != "" {
		t.Errorf("order of the other pods (-want +got):\n%s", diff)
	}
}

// CS-185: a rollout in several passes, each of which sees only what is left, ends up spread like one in a
// single pass.
func TestScatterOverSeveralPasses(t *testing.T) {
	tests := map[string]struct {
		pods    string
		atATime int
		want    string
	}{
		"10 pods, all at once":                {"mmm.......", 10, "m....m...m"},
		"10 pods, one at a time":              {"mmm.......", 1, "m...m....m"},
		"10 pods, 4 at a time":                {"mmm.......", 4, "m...m....m"},
		"10 pods, 5 at a time":                {"mmm.......", 5, "m....m...m"},
		"20 pods, all at once":                {"mmmmm...............", 20, "m....m....m....m...m"},
		"20 pods, one at a time":              {"mmmmm...............", 1, "m...m....m....m....m"},
		"20 pods, 3 at a time":                {"mmmmm...............", 3, "m...m....m....m....m"},
		"20 pods, 7 at a time":                {"mmmmm...............", 7, "m....m...m....m....m"},
		"more matching ones, all at once":     {"mmmmmmmm....", 12, "mm.mm.mm.m.m"},
		"more matching ones, one at a time":   {"mmmmmmmm....", 1, "m.m.mm.mm.mm"},
		"more matching ones, three at a time": {"mmmmmmmm....", 3, "mm..mm.mm.mm"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			all := row(tt.pods)
			var updated []Candidate
			for left := all; len(left) > 0; {
				left = Scatter(left, all, roles("m")...)
				n := min(tt.atATime, len(left))
				updated, left = append(updated, left[:n]...), left[n:]
			}
			if diff := cmp.Diff(tt.want, letters(updated)); diff != "" {
				t.Errorf("order in which the pods were updated (-want +got):\n%s", diff)
			}
		})
	}
}

// SS-214 (with TestScatter, whose terms are the same): a star stands for one term for each value among all
// pods, updated ones included. A value that another term names too counts once, and pods without the label
// match none.
func TestAStarStandsForEveryValue(t *testing.T) {
	for _, row2 := range []struct{ candidates, updated string }{{"aabbb....", ""}, {"aabbccc.....", "ab"}, {"aab....", "bbb"},
		{"....", "aa"}, {"aa..", "ccc"}} {
		pods := row(row2.candidates + row2.updated)
		candidates := pods[:len(row2.candidates):len(row2.candidates)]
		want := letters(SortForSidecars(candidates, pods, nil, roles("a", "b", "c")))
		for name, terms := range map[string][]pub.UpdateScatterTerm{"a star": roles("*"), "twice": roles("*", "*"),
			"and a value": roles("*", "a"), "after the values": roles("a", "b", "*"), "values twice": roles("a", "b", "c", "a", "b", "c")} {
			if got := letters(SortForSidecars(candidates, pods, nil, terms)); got != want {
				t.Errorf("%v, %s: %s, want %s", row2, name, got, want)
			}
		}
		if got := letters(SortForSidecars(candidates, pods, nil, []pub.UpdateScatterTerm{{Key: "zone", Value: "*"}})); got != letters(
			SortForSidecars(candidates, pods, nil, nil)) {
			t.Errorf("%v, a star of a label that none has: %s", row2, got)
		}
	}
	alone := letters(SortForUpdate(row("aabb...."), row("aabb...."), nil, roles("*"))) // for workloads "*" is a value like any other
	if plain := letters(SortForUpdate(row("aabb...."), row("aabb...."), nil, nil)); alone != plain {
		t.Errorf("order with a star as a value of a workload: got %s, want %s", alone, plain)
	}
}
