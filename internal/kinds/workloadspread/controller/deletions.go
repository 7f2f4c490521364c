package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// deletions finds out whether deletions that were admitted have happened, and remembers it (WS-074).
type deletions struct {
	live client.Reader
	now  func() time.Time

	mu      sync.Mutex
	answers map[types.NamespacedName]answer
}

// answer is whether the deletion that was booked at a time had happened when that was asked.
type answer struct {
	booked, at time.Time
	going      bool
}

const (
	// answersMost is how many answers are remembered.
	answersMost = 10_000
	// staysFor is how long a deletion at most that has not happened is not asked about again, so that what is decided again
	// after a conflict needs no reads, each of which makes the next conflict likely.
	staysFor = time.Second
	// readingMost is how long the decisions of one batch may wait for the API server. While it does not answer, no place is free
	// that depends on it. The read of a pod of 8 kB takes 2 ms on two busy cores, and up to sixteen are read at once.
	readingMost = time.Second
)

// ask makes a ledger ask about the pods of a namespace. ctx is that of a request, of whose time it leaves the most.
func (d *deletions) ask(ctx context.Context, ledger *workloadspread.Ledger, namespace string) {
	left := readingMost
	if deadline, limited := ctx.Deadline(); limited {
		left = min(left, time.Until(deadline)/4)
	}
	ledger.Known = func(pod string, booked time.Time) (going, known bool) {
		return d.known(types.NamespacedName{Namespace: namespace, Name: pod}, booked)
	}
	ledger.Going = func(booked []workloadspread.BookedDeletion) []bool {
		begun, going := d.now(), make([]bool, len(booked))
		var all sync.WaitGroup
		for i, b := range booked {
			all.Go(func() {
				going[i] = d.going(ctx, types.NamespacedName{Namespace: namespace, Name: b.Pod}, b.At, left)
			})
		}
		all.Wait()
		left -= d.now().Sub(begun)
		return going
	}
}

func (d *deletions) known(pod types.NamespacedName, booked time.Time) (going, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.answers[pod]
	return a.going, ok && a.booked.Equal(booked) && (a.going || d.now().Sub(a.at) < a.stays())
}

// stays returns how long it is believed that a deletion has not happened. One that was just admitted happens in a moment, and the pod
// that takes its place comes then. Bookings have whole seconds.
func (a *answer) stays() time.Duration {
	return min((a.at.Sub(a.booked)-time.Second)/2, staysFor)
}

// going reports whether a pod whose deletion was booked goes, or has ended. If the API server does not answer, the pod may still be
// there. The cache is not read, which would save most reads: what ends there may be an earlier pod of the name, since a booking does
// not tell the UID.
func (d *deletions) going(of context.Context, pod types.NamespacedName, booked time.Time, within time.Duration) bool {
	if going, _ := d.known(pod, booked); going {
		return true
	}
	if within <= 0 {
		return false
	}

	ctx, cancel := context.WithTimeout(of, within)
	defer cancel()
	found := &corev1.Pod{}
	err := d.live.Get(ctx, pod, found)
	if of.Err() != nil { // another request decides
		return false
	}
	going := apierrors.IsNotFound(err) || err == nil && !readiness.Active(found)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.answers) >= answersMost {
		clear(d.answers)
	}
	d.answers[pod] = answer{booked, d.now(), going}
	return going
}

// booked forgets what is known about an earlier pod of the name. Its deletion may have been booked in the same second.
func (d *deletions) booked(pod types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.answers, pod)
}
