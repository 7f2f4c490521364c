package rollout

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// Scatter returns the candidates with the pods of each term spread among the others. It applies the term with
// the most candidates first (CS-184 to 186). It does not change the given slice. all are the pods of the
// workload, updated or not.
func Scatter(candidates, all []Candidate, terms ...pub.UpdateScatterTerm) []Candidate {
	return pick(candidates, scattered(asGiven(candidates), candidates, all, terms))
}

// expand replaces a term with value "*" by one term for each value, and drops duplicates.
func expand(terms []pub.UpdateScatterTerm, all []Candidate) []pub.UpdateScatterTerm {
	var expanded []pub.UpdateScatterTerm
	for _, term := range terms {
		if term.Value != "*" {
			expanded = append(expanded, term)
			continue
		}
		values := map[string]bool{}
		for _, c := range all {
			if value, ok := c.Pod.Labels[term.Key]; ok {
				values[value] = true
			}
		}
		for _, value := range slices.Sorted(maps.Keys(values)) {
			expanded = append(expanded, pub.UpdateScatterTerm{Key: term.Key, Value: value})
		}
	}

	seen := map[pub.UpdateScatterTerm]bool{}
	return slices.DeleteFunc(expanded, func(term pub.UpdateScatterTerm) bool {
		known := seen[term]
		seen[term] = true
		return known
	})
}

func scattered(order []int, candidates, all []Candidate, terms []pub.UpdateScatterTerm) []int {
	var spreads []spread
	for _, term := range terms {
		labelled := func(pod *corev1.Pod) bool {
			value, ok := pod.Labels[term.Key]
			return ok && value == term.Value
		}
		s := spread{matches: which(candidates, labelled)}
		// Otherwise the term has no effect.
		if s.matching = count(s.matches); s.matching > 1 && len(candidates)-s.matching > 1 {
			s.allMatching = count(which(all, labelled))
			spreads = append(spreads, s)
		}
	}

	slices.SortStableFunc(spreads, func(a, b spread) int { return cmp.Compare(b.matching, a.matching) })
	for _, s := range spreads {
		order = s.apply(order, len(all))
	}

	return order
}

func count(in []bool) int {
	n := 0
	for _, belongs := range in {
		if belongs {
			n++
		}
	}
	return n
}

// spread applies one term.
type spread struct {
	// matches is true for each candidate that matches.
	matches []bool
	// matching is how many candidates match, and allMatching how many of all pods.
	matching, allMatching int
}

// apply spreads the matching candidates. The last of them goes to the very end and does not count in the
// groups.
func (s spread) apply(order []int, all int) []int {
	matching, others := part(order, s.matches)
	matching, last := matching[:len(matching)-1], matching[len(matching)-1]
	l := layoutOf(len(matching), len(others), s.allMatching-1, all-s.allMatching)

	laid := make([]int, 0, len(order))
	next := func(from *[]int, n int) {
		n = min(n, len(*from))
		laid, *from = append(laid, (*from)[:n]...), (*from)[n:]
	}

	next(&others, l.ahead)
	for range l.groups {
		next(&matching, l.matching)
		next(&others, l.others)
	}
	return append(append(append(laid, matching...), others...), last)
}

// layout defines how matching and other pods alternate.
type layout struct {
	// groups is the number of groups of each kind; matching and others are the numbers of pods in one group.
	groups, matching, others int
	// ahead is how many of the others come before the first group.
	ahead int
}

// layoutOf lays out the candidates by the share of matching pods among them. If the others have a larger
// share among the candidates than among all pods, it uses the share among all pods: in this case, the pods
// updated before ended within a group of others.
func layoutOf(matching, others, allMatching, allOthers int) layout {
	// All pods include the candidates.
	allMatching, allOthers = max(allMatching, matching), max(allOthers, others)
	if allOthers*matching >= others*allMatching {
		return evenLayout(matching, others)
	}
	l := evenLayout(allMatching, allOthers)
	l.groups = min(matching/l.matching, others/l.others)
	l.ahead = others - l.groups*l.others
	return l
}

func evenLayout(matching, others int) layout {
	groups := min(matching, others)
	return layout{groups: groups,
		matching: divideRounded(matching, groups), others: divideRounded(others, groups)}
}

// divideRounded divides and rounds half up.
func divideRounded(n, by int) int { return (2*n + by) / (2 * by) }
