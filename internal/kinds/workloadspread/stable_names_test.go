package workloadspread

import (
	"fmt"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// follow writes what a decision says, as the Booker does.
func follow(spread *appsv1beta1.WorkloadSpread, d Decision) {
	if d.List != nil {
		spread.Status.VersionedSubsetStatuses[VersionIgnored] = d.List
	}
}

// TestPodsOfFixedNamesReturnToTheirSubset: pods whose names stay, as with claims, are deleted and made again
// before the controller has counted, in whatever order, and whether it counts in between from a cache that
// still shows the earlier pods: each returns to its subset, which has no place for another one (WS-073,
// WS-103, WS-150).
func TestPodsOfFixedNamesReturnToTheirSubset(t *testing.T) {
	// Of each step the first letter is D for a deletion, C for a creation, R for a recount.
	orders := map[string][]string{
		"all deleted first":              {"D w0", "D w1", "D w2", "C w0", "C w1", "C w2"},
		"one after the other":            {"D w0", "C w0", "D w1", "C w1", "D w2", "C w2"},
		"a recount before the creations": {"D w0", "D w1", "R", "C w0", "C w1"},
		"a recount in between":           {"D w0", "D w1", "D w2", "C w0", "R", "C w1", "R", "C w2"},
		"again, one after the other":     {"D w0", "R", "C w0", "R", "D w1", "R", "C w1", "R", "D w2", "C w2"},
	}
	for _, most := range []string{"50%", "5"} {
		for name, order := range orders {
			t.Run(most+", "+name, func(t *testing.T) {
				target := &Target{Exists: true, Desired: 10}
				spread := workloadspreadtest.Read(t, fmt.Sprintf(`{spec: {subsets: [{name: a, maxReplicas: %s}, {name: b, maxReplicas: %s}]}, status: {versionedSubsetStatuses: {versionIgnored: [
					{name: a, replicas: 5, missingReplicas: 0}, {name: b, replicas: 5, missingReplicas: 0}]}}}`, most, most))
				var cached []Seen
				for i := range 10 {
					cached = append(cached, Seen{Name: fmt.Sprintf("w%d", i), Version: VersionIgnored, Subset: []string{"a", "b"}[i/5],
						Active: true, Created: workloadspreadtest.BookingTime.Add(-time.Hour)})
				}
				now := workloadspreadtest.BookingTime
				for _, step := range order {
					now = now.Add(10 * time.Millisecond)
					switch step[0] {
					case 'R':
						quotas, err := Quotas(spread.Spec.Subsets, target.Desired)
						if err != nil {
							t.Fatal(err)
						}
						counted := Count(quotas, spread.Status.VersionedSubsetStatuses[VersionIgnored], VersionIgnored, cached, now)
						follow(spread, Decision{List: counted.Subsets})
					case 'D':
						follow(spread, Delete(spread, target, Deletion{Name: step[2:], Version: VersionIgnored, Subset: "a"}, now))
					case 'C':
						d := Create(spread, target, Creation{Key: step[2:], Version: VersionIgnored}, now)
						if follow(spread, d); d.Subset == nil || d.Subset.Name != "a" {
							t.Fatalf("%s: got %+v, reason %q, want subset a", step, d.Subset, d.Reason)
						}
					}
				}
				if d := Create(spread, target, Creation{Key: "one-more", Version: VersionIgnored}, now); d.Subset != nil {
					t.Errorf("another pod gets into subset %s: %+v", d.Subset.Name, spread.Status)
				}
			})
		}
	}
}

// WS-151 (part): a pod of a fixed name lived for 10 s and is made again. A cache that still shows the earlier one, which ends, does not
// make the place of the new one free.
func TestAShortLivedPodOfTheName(t *testing.T) {
	now := workloadspreadtest.BookingTime
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 1}, {name: b}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 1, missingReplicas: 0}, {name: b, replicas: 0, missingReplicas: -1}]}}}`)
	earlier := Seen{Name: "web-0", Version: VersionIgnored, Subset: "a", Created: now.Add(-10 * time.Second)}
	follow(spread, Delete(spread, nil, Deletion{Name: "web-0", Version: VersionIgnored, Subset: "a"}, now))
	d := Create(spread, nil, Creation{Key: "web-0", Version: VersionIgnored}, now.Add(time.Second))
	follow(spread, d)
	if subsetOf(t, d) != "a" {
		t.Fatal(d)
	}
	counted := Count([]SubsetQuota{{"a", 1}, {"b", Unlimited}}, spread.Status.VersionedSubsetStatuses[VersionIgnored], VersionIgnored,
		[]Seen{earlier}, now.Add(1100*time.Millisecond))
	follow(spread, Decision{List: counted.Subsets})
	if d := Create(spread, nil, Creation{Key: "web-1", Version: VersionIgnored}, now.Add(1200*time.Millisecond)); subsetOf(t, d) == "a" {
		t.Errorf("web-0 is about to come into subset a of 1, and web-1 is put there, too: %+v", counted.Subsets[0])
	}
}

// WS-102 (part): the creation of a pod of a fixed name is admitted, and takes a while. The earlier pod is deleted by force meanwhile, so
// that the creation succeeds. The deletion does not cancel that creation, whose place would be free.
func TestACreationBeforeTheDeletionOfTheEarlierPod(t *testing.T) {
	now := workloadspreadtest.BookingTime
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 1, missingReplicas: 1}, {name: b, replicas: 0, missingReplicas: -1}]}}}`)
	if d := Create(spread, nil, Creation{Key: "web-0", Version: VersionIgnored}, now); subsetOf(t, d) != "a" {
		t.Fatal(d)
	} else {
		follow(spread, d)
	}
	follow(spread, Delete(spread, nil, Deletion{Name: "web-0", Version: VersionIgnored, Subset: "a", Created: now.Add(-time.Minute)}, now.Add(time.Second)))
	// The earlier web-0 is gone, which the controller sees; the new one is not stored yet.
	counted := Count([]SubsetQuota{{"a", 2}, {"b", Unlimited}}, spread.Status.VersionedSubsetStatuses[VersionIgnored], VersionIgnored, nil,
		now.Add(1100*time.Millisecond))
	follow(spread, Decision{List: counted.Subsets})
	n := 1 // web-0
	for _, key := range []string{"x", "y"} {
		d := asks(spread, nil, now.Add(1200*time.Millisecond), func(string) bool { return true }, func(l *Ledger) (Decision, func()) {
			return l.Create(Creation{Key: key, Version: VersionIgnored})
		})
		if subsetOf(t, d) == "a" {
			n++
		}
	}
	if n > 2 {
		t.Errorf("subset a of 2 gets %d pods", n)
	}
}
