package simulation

import (
	"fmt"
	"time"
)

// Play is a manager that looks after one object of a cluster, with everybody else who acts in it.
type Play struct {
	*Cluster
	// Queue calls the manager as its work queue does.
	Queue *Queue
	// Reconcile makes one pass over the object, and returns when it wants to be called again.
	Reconcile func() (after time.Duration, err error)
	// Start starts the manager anew after it died.
	Start func()
	// EnvironmentStep lets all others act once, kubelets and users, and tells whether anything happened.
	EnvironmentStep func() bool
	// Describe says how things stand, for failures.
	Describe func() string
}

// Manage makes one pass if anything would call the manager, and tells whether it did.
func (p *Play) Manage() bool {
	if !p.Queue.Take() {
		return false
	}
	p.Queue.Done(p.Reconcile())
	return true
}

// Events brings up to n events to the caches, which calls the manager if there were any, or if
// [Cluster.Delivered] does.
func (p *Play) Events(n int) {
	if p.Deliver(n) && p.Delivered == nil {
		p.Queue.Add()
	}
}

// all is more events than there ever are.
const all = 1 << 20

// Round lets everybody act once, with caches that keep up, and tells whether anything happened.
func (p *Play) Round() bool {
	p.Events(all)
	moved := p.Manage()
	if p.Dead() {
		return false
	}
	moved = p.EnvironmentStep() || moved
	return moved || p.Undelivered() > 0 || p.Queue.Added()
}

// Settle lets everything that is under way come to rest: no faults, caches that keep up.
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
