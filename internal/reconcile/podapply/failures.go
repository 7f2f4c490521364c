package podapply

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/internal/engine/podplan"
)

// Failures are the places where pods of a workload ended by themselves, for one generation of its spec. A
// place is a node or the name of a pod (ADS-091, ASTS-140).
type Failures struct {
	generation int64
	places     map[string]failure
}

// failure defines how long the next pod that ends in a place is kept, and until when.
type failure struct {
	wait  time.Duration
	until time.Time
}

// These are the bounds of how long a pod that ended is kept after another one was deleted in its place. The
// time doubles with each deletion.
const firstFailure, lastFailure = time.Second, 15 * time.Minute

// Until returns for each place the time until which a pod that ends there is kept. Old entries are dropped.
func (f *Failures) Until(generation int64, now time.Time) map[string]time.Time {
	if f.generation != generation {
		*f = Failures{generation: generation}
	}
	if len(f.places) == 0 {
		return nil
	}
	until := make(map[string]time.Time, len(f.places))
	for place, of := range f.places {
		if now.Sub(of.until) > 2*lastFailure {
			delete(f.places, place)
			continue
		}
		until[place] = of.until
	}
	return until
}

// Learn records that a pod was deleted because it ended.
func (f *Failures) Learn(generation int64, place string, now time.Time) {
	if f.places == nil || f.generation != generation {
		*f = Failures{generation: generation, places: map[string]failure{}}
	}
	wait := min(max(2*f.places[place].wait, firstFailure), lastFailure)
	f.places[place] = failure{wait, now.Add(wait)}
}

// Deleted returns for each pod with a verdict that was carried out whether that verdict deleted it.
func (r *Result) Deleted() map[types.UID]bool {
	deleted := map[types.UID]bool{}
	for _, v := range r.Done {
		deleted[v.Pod.UID] = v.Action == podplan.Delete
	}
	return deleted
}
