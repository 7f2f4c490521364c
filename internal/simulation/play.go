package simulation

import (
	"fmt"
	"time"
)

// Play simulates a manager of one object of a cluster, together with everybody else who acts there.
type Play struct {
	*Cluster
	// Queue decides when the manager is called, like its work queue.
	Queue *Queue
	// Reconcile makes one pass over the object, and returns after which time it must be called again.
	Reconcile func() (after time.Duration, err error)
	// Start starts the manager again after it died.
	Start func()
	// EnvironmentStep lets all others act once, kubelets and users, and tells whether anything happened.
	EnvironmentStep func() bool
	// Describe says how things stand, for failures.
	Describe func() string
}

// Manage makes one pass if the object is in the queue, and reports whether it did.
func (p *Play) Manage() bool {
	if !p.Queue.Take() {
		return false
	}
	p.Queue.Done(p.Reconcile())
	return true
}

// Events delivers up to n events to the caches. If there were any, it enqueues the object, unless
// [Cluster.Delivered] is set, which does that itself.
func (p *Play) Events(n int) {
	if p.Deliver(n) && p.Delivered == nil {
		p.Queue.Add()
	}
}

// all is larger than any number of events.
const all = 1 << 20

// Round lets everybody act once, with caches that are up to date, and reports whether anything happened.
func (p *Play) Round() bool {
	p.Events(all)
	moved := p.Manage()
	if p.Dead() {
		return false
	}
	moved = p.EnvironmentStep() || moved
	return moved || p.Undelivered() > 0 || p.Queue.Added()
}

// Settle runs until nothing is in progress any more, without faults and with caches that are up to date.
func (p *Play) Settle(limit int) error {
	p.Faults = Faults{}
	if p.Dead() {
		p.Start()
	}

	for range limit {
		if p.Round() {
			continue
		}
		if p.Dead() {
			return fmt.Errorf("the manager died at rest")
		}
		if !p.Queue.Wait() {
			return nil
		}
	}

	return fmt.Errorf("no rest after %d rounds: %s", limit, p.Describe())
}
