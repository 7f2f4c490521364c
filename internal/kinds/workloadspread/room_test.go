package workloadspread

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// subsetOf is the name of the subset that a decision chooses.
func subsetOf(t *testing.T, d Decision) string {
	t.Helper()
	if d.Subset == nil {
		return "none"
	}
	return d.Subset.Name
}

// each returns what asks about each deletion by itself.
func each(going func(pod string) bool) func([]BookedDeletion) []bool {
	return func(booked []BookedDeletion) []bool {
		answers := make([]bool, len(booked))
		for i, b := range booked {
			answers[i] = going(b.Pod)
		}
		return answers
	}
}

// asks makes and writes one decision, with a ledger that asks for deletions.
func asks(spread *appsv1beta1.WorkloadSpread, target *Target, now time.Time, going func(string) bool,
	decide func(*Ledger) (Decision, func())) Decision {
	l := NewLedger(spread, target, now)
	l.Going = each(going)
	d, commit := decide(l)
	commit()
	d.List = l.Changed()[VersionIgnored]
	follow(spread, d)
	return d
}

// WS-074 (part), WS-103 (part): a pod that was not counted yet is deleted, and a creation finds that it is still there. The pod goes
// after that, and the next count frees its place.
func TestADeletionThatHappensLateFreesItsPlace(t *testing.T) {
	now := workloadspreadtest.BookingTime
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 1}, {name: b}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 0, missingReplicas: 1}, {name: b, replicas: 0, missingReplicas: -1}]}}}`)
	follow(spread, Create(spread, nil, Creation{Key: "id-1", Generated: true, Version: VersionIgnored}, now))
	follow(spread, Delete(spread, nil, Deletion{Name: "web-x", Version: VersionIgnored, Subset: "a", Booking: "id-1"}, now))
	d := asks(spread, nil, now, func(string) bool { return false }, func(l *Ledger) (Decision, func()) {
		return l.Create(Creation{Key: "id-2", Generated: true, Version: VersionIgnored})
	})
	if got := subsetOf(t, d); got != "b" {
		t.Errorf("the only place of subset a is taken, and a pod is put into subset %s", got)
	}
	// The controller sees the pod end, and then nothing of it.
	quotas := []SubsetQuota{{"a", 1}, {"b", Unlimited}}
	for i, pods := range [][]Seen{{{Name: "web-x", Version: VersionIgnored, Subset: "a", Booking: "id-1", Created: now}}, nil} {
		counted := Count(quotas, spread.Status.VersionedSubsetStatuses[VersionIgnored], VersionIgnored, pods, now.Add(20*time.Second))
		if a := counted.Subsets[0]; a.MissingReplicas != 1 {
			t.Errorf("count %d, 20 s after the end of the only pod: subset a has no free place: %+v", i, a)
		}
		follow(spread, Decision{List: counted.Subsets})
	}
}

// WS-074 (part), WS-103 (part): a pod that was not counted yet is deleted, and the deletion is refused. It is counted, and nobody waits
// for its creation.
func TestAPodThatWasNotCountedStays(t *testing.T) {
	now := workloadspreadtest.BookingTime
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 1}, {name: b}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 0, missingReplicas: 1}, {name: b, replicas: 0, missingReplicas: -1}]}}}`)
	follow(spread, Create(spread, nil, Creation{Key: "id-1", Generated: true, Version: VersionIgnored}, now))
	follow(spread, Delete(spread, nil, Deletion{Name: "web-x", Version: VersionIgnored, Subset: "a", Booking: "id-1"}, now))
	asks(spread, nil, now, func(string) bool { return false }, func(l *Ledger) (Decision, func()) {
		return l.Create(Creation{Key: "id-2", Generated: true, Version: VersionIgnored})
	})
	pods := []Seen{{Name: "web-x", Version: VersionIgnored, Subset: "a", Booking: "id-1", Created: now, Active: true}}
	counted := Count([]SubsetQuota{{"a", 1}, {"b", Unlimited}}, spread.Status.VersionedSubsetStatuses[VersionIgnored], VersionIgnored, pods, now.Add(20*time.Second))
	if a := counted.Subsets[0]; a.Replicas != 1 || len(a.CreatingPods) > 0 {
		t.Errorf("the pod is there and seen for 20 s: %+v", a)
	}
	counted = Count([]SubsetQuota{{"a", 1}, {"b", Unlimited}}, spread.Status.VersionedSubsetStatuses[VersionIgnored], VersionIgnored, pods, now.Add(31*time.Second))
	if slices.ContainsFunc(counted.Lost, func(lost LostBooking) bool { return !lost.Deletion }) {
		t.Errorf("event CreatePodFailed about a pod that is there: %+v", counted.Lost)
	}
}

// WS-073 (part): the deletion of a pod was admitted and refused, and its controller creates it once more. The API server will answer
// that it is there, and it keeps its place.
func TestAPodIsCreatedOnceMoreWhileItStays(t *testing.T) {
	for _, most := range []string{"2", "20%"} {
		t.Run(most, func(t *testing.T) {
			now := workloadspreadtest.BookingTime
			target := &Target{Exists: true, Desired: 10}
			spread := workloadspreadtest.Read(t, fmt.Sprintf(`{spec: {subsets: [{name: a, maxReplicas: %s}, {name: b, maxReplicas: %s}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 2, missingReplicas: 0}, {name: b, replicas: 0, missingReplicas: 2}]}}}`, most, most))
			stays := func(string) bool { return false }
			follow(spread, Delete(spread, target, Deletion{Name: "web-1", Version: VersionIgnored, Subset: "a"}, now))
			d := asks(spread, target, now, stays, func(l *Ledger) (Decision, func()) {
				return l.Create(Creation{Key: "web-1", Version: VersionIgnored})
			})
			if subsetOf(t, d) != "a" || d.Booked || d.List != nil {
				t.Errorf("web-1 is created once more: got %+v, want subset a and no booking", d)
			}
			if most == "2" { // another deletion that is refused
				follow(spread, Delete(spread, target, Deletion{Name: "web-0", Version: VersionIgnored, Subset: "a"}, now))
			}
			if d := asks(spread, target, now, stays, func(l *Ledger) (Decision, func()) {
				return l.Create(Creation{Key: "web-2", Version: VersionIgnored})
			}); subsetOf(t, d) == "a" {
				t.Errorf("subset a has web-0 and web-1, both active, and gets web-2: %+v", spread.Status.VersionedSubsetStatuses[VersionIgnored])
			}
		})
	}
}

// WS-074 (part): the decisions of a batch ask about each deletion once, and about few more than they need.
func TestABatchLooksAtItsDeletionsOnce(t *testing.T) {
	var going []string
	const n = 12000
	for i := range n {
		going = append(going, fmt.Sprintf(`p-%05d: "2026-01-01T11:59:5%dZ"`, i, i%10))
	}
	spread := workloadspreadtest.Read(t, fmt.Sprintf(`{spec: {subsets: [{name: a, maxReplicas: %d}, {name: b}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: %d, missingReplicas: %d, deletingPods: {%s}}, {name: b, replicas: 0, missingReplicas: -1}]}}}`, n, n, n, strings.Join(going, ", ")))
	for _, ask := range []bool{false, true} {
		l := NewLedger(spread, nil, workloadspreadtest.BookingTime)
		asked := 0
		if ask {
			l.Going = each(func(string) bool { asked++; return true })
		}
		for i := range 250 {
			_, commit := l.Create(Creation{Key: fmt.Sprintf("id-%d", i), Generated: true, Version: VersionIgnored})
			commit()
		}
		if want := map[bool]int{true: 250}[ask]; asked < want || asked > want+askedAtOnce {
			t.Errorf("asked: got %d times, want %d or some more", asked, want)
		}
	}
}

// WS-074 (part): a deletion and a creation share a write. The deletion cannot have happened yet, because its webhook has not answered;
// once it has, its place is free.
func TestADeletionOfTheSameBatchHasNotHappened(t *testing.T) {
	now := workloadspreadtest.BookingTime
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 2}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 2, missingReplicas: 0}]}}}`)
	happened := map[string]bool{}
	l := NewLedger(spread, nil, now)
	l.Going = each(func(pod string) bool { return happened[pod] })
	_, commit := l.Delete(Deletion{Name: "p", Version: VersionIgnored, Subset: "a"})
	commit()
	_, commit = l.Create(Creation{Key: "id-1", Generated: true, Version: VersionIgnored}) // a surge pod, for which there is no place
	commit()
	follow(spread, Decision{List: l.Changed()[VersionIgnored]})
	happened["p"] = true // right after the answer
	if d := asks(spread, nil, now.Add(100*time.Millisecond), func(pod string) bool { return happened[pod] }, func(l *Ledger) (Decision, func()) {
		return l.Create(Creation{Key: "id-2", Generated: true, Version: VersionIgnored})
	}); subsetOf(t, d) != "a" {
		t.Errorf("pod p ended, and the pod that replaces it stays without a subset: %s; %+v", d.Reason, spread.Status.VersionedSubsetStatuses[VersionIgnored][0])
	}
}

// WS-073 (part), WS-074 (part): a pod is made again under its name in the same write in which others ask about deletions. Its own deletion
// is settled then, and frees no second place.
func TestADeletionThatIsSettledFreesNoSecondPlace(t *testing.T) {
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 3}]}, status: {versionedSubsetStatuses: {versionIgnored: [
		{name: a, replicas: 3, missingReplicas: 3, deletingPods: {p-1: "2026-01-01T11:59:58Z", p-2: "2026-01-01T11:59:59Z", p-3: "2026-01-01T11:59:57Z"}}]}}}`)
	l := NewLedger(spread, nil, workloadspreadtest.BookingTime)
	l.Going = each(func(pod string) bool { return pod != "p-3" })
	for _, tt := range []struct {
		pod    Creation
		subset string
	}{
		{Creation{Key: "id-1", Generated: true, Version: VersionIgnored}, "a"},
		{Creation{Key: "p-1", Version: VersionIgnored}, "a"},
		{Creation{Key: "id-2", Generated: true, Version: VersionIgnored}, "none"}, // p-3 stays
	} {
		d, commit := l.Create(tt.pod)
		commit()
		if got := subsetOf(t, d); got != tt.subset {
			t.Errorf("%s: got subset %s, want %s", tt.pod.Key, got, tt.subset)
		}
	}
}
