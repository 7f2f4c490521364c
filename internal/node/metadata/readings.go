package metadata

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// readings remembers which environments could not be read, and when each is to be read again: after 3 s, with
// doubled pauses up to 10 minutes. Events of the pod do not change that (ND-106).
type readings struct {
	mu   sync.Mutex
	held map[types.UID]map[string]hold // by pod and container ID
}

type hold struct {
	delay time.Duration
	until time.Time
}

func newReadings() *readings { return &readings{held: map[types.UID]map[string]hold{}} }

// due tells whether the environment may be read now.
func (r *readings) due(pod types.UID, id string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !now.Before(r.held[pod][id].until)
}

// failed remembers that the environment could not be read.
func (r *readings) failed(pod types.UID, id string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[pod] == nil {
		r.held[pod] = map[string]hold{}
	}
	delay := min(max(2*r.held[pod][id].delay, firstRetry), lastRetry)
	r.held[pod][id] = hold{delay, now.Add(delay)}
}

// wait drops all containers of the pod but the wanted ones, and returns how long to wait for the next of
// these; 0 if there is none.
func (r *readings) wait(pod types.UID, wanted []string, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()

	var next time.Duration
	for id, h := range r.held[pod] {
		if !slices.Contains(wanted, id) {
			delete(r.held[pod], id)
			continue
		}
		if left := max(h.until.Sub(now), time.Millisecond); next == 0 || left < next {
			next = left
		}
	}

	if len(r.held[pod]) == 0 {
		delete(r.held, pod)
	}

	return next
}

func (r *readings) forget(pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, pod)
}
