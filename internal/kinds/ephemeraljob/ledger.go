package ephemeraljob

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// Ledger joins what was counted of pods that are gone to what is seen of those that are there (EJ-037,
// EJ-038). It is kept between the plans of one job; the zero value has seen nothing. A Ledger is not changed:
// each plan makes the next one.
type Ledger struct {
	// shown are the numbers that the status had, and those that it was to get: what follows from other
	// numbers is somebody else's.
	begun bool
	shown [2]counts
	// seen are the treated pods that were there, with their results; stuck is since when those wait for what
	// cannot heal.
	seen  map[types.UID]Result
	stuck map[types.UID]time.Time
	// succeeded and failed are the treated pods that are gone.
	succeeded, failed int
}

// counts are the numbers of a status that speak of treated pods.
type counts struct{ succeeded, failed, running, waiting int }

func countsOf(status *appsv1alpha1.EphemeralJobStatus) counts {
	number := func(n int32) int { return max(int(n), 0) }
	return counts{number(status.Succeeded), number(status.Failed), number(status.Running),
		number(status.Waiting)}
}

func (c counts) all() int { return c.succeeded + c.failed + c.running + c.waiting }

// live are the treated pods that are there.
type live struct {
	uid     types.UID
	outcome outcome
	// lost judges the pod as one that has waited long enough for what cannot heal.
	lost func() outcome
}

// next settles which pods are gone, and since when others are stuck. The outcomes of pods that have waited
// too long for what cannot heal are those of failed ones then.
func (l Ledger) next(status *appsv1alpha1.EphemeralJobStatus, pods []live, now time.Time) Ledger {
	found := countsOf(status)
	n := Ledger{begun: true, shown: [2]counts{found, found}, seen: map[types.UID]Result{},
		stuck: map[types.UID]time.Time{}, succeeded: l.succeeded, failed: l.failed}
	begins := !l.begun || found != l.shown[0] && found != l.shown[1]
	// A manager that starts does not know since when pods are stuck. As many as the status has more failures
	// have been so for long.
	known := found.failed
	for i := range pods {
		if pods[i].outcome.result == Failed {
			known--
		}
	}

	for i := range pods {
		p := &pods[i]
		if !p.outcome.stuck {
			continue
		}
		since, ok := l.stuck[p.uid]
		if !ok {
			since = now
			if begins && known > 0 && p.outcome.result != Failed {
				since, known = now.Add(-hopelessAfter), known-1
			}
		}
		n.stuck[p.uid] = since
		if now.Sub(since) >= hopelessAfter {
			p.outcome = p.lost()
		}
	}

	var succeeded, failed int
	for i := range pods {
		switch n.seen[pods[i].uid] = pods[i].outcome.result; pods[i].outcome.result {
		case Succeeded:
			succeeded++
		case Failed:
			failed++
		}
	}

	if begins {
		n.succeeded = max(found.succeeded-succeeded, 0)
		n.failed = max(found.all()-len(pods)-n.succeeded, found.failed-failed, 0)
		return n
	}

	for uid, result := range l.seen {
		if _, there := n.seen[uid]; there {
			continue
		}
		if result == Succeeded {
			n.succeeded++
		} else {
			n.failed++
		}
	}

	return n
}

// showing is the ledger once the status is to show these numbers.
func (l Ledger) showing(status *appsv1alpha1.EphemeralJobStatus) Ledger {
	l.shown[1] = countsOf(status)
	return l
}

// gone is how many treated pods are gone.
func (l *Ledger) gone() int { return l.succeeded + l.failed }

// soonest is when the first of the stuck pods has waited long enough; zero for never.
func (l *Ledger) soonest(now time.Time) (due time.Time) {
	for since := range maps.Values(l.stuck) {
		if at := since.Add(hopelessAfter); at.After(now) && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}
