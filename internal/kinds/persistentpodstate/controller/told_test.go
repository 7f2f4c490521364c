package controller

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/simulation"
)

// PPS-082 (part): a quota refused what was to be generated, and no event told why there was none.
func TestNothingToldThatWhatIsGeneratedIsRefused(t *testing.T) {
	w := pinned(t)
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == pps {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "persistentpodstates"}, "web", errors.New("exceeded quota: few"))
		}
		return nil
	}
	w.make("web", 1, 0, map[string]string{pub.AutoGeneratePersistentPodState: "true", pub.RequiredPersistentTopology: "zone"})
	w.Events(1 << 20)
	w.Manage()
	if w.tells("web Warning PersistentPodStateConflict: what the annotations ask for was refused") != 1 || w.tells("exceeded quota: few") != 1 {
		t.Error(w.told)
	}
}

// PPS-017 (part), PPS-082 (part): the manager had not been granted to read what is listed. No place was
// recorded, and nothing told why but the log of the manager.
func TestNothingToldThatTheWorkloadMayNotBeRead(t *testing.T) {
	w := pinned(t)
	w.make("web", 1, 0, nil)
	w.write("places", "web", nil)
	w.Events(1 << 20)
	refusal := apierrors.NewForbidden(schema.GroupResource{Group: "games.example.com", Resource: "games"}, "web", errors.New("no rights"))
	w.r.Workloads = forbidden{refusal}
	for range 3 {
		if _, err := w.r.pass(t.Context(), client.ObjectKeyFromObject(w.state("places")), w.state("places").UID); err == nil {
			t.Fatal("it may be read")
		}
	}
	if w.tells("places Warning WorkloadUnreadable: No place is recorded or forgotten: games.games.example.com \"web\" is forbidden") != 1 {
		t.Error(w.told)
	}
}

// forbidden are workloads that may not be read.
type forbidden struct{ err error }

// Read implements Workloads.
func (f forbidden) Read(context.Context, string, persistentpodstate.Reference, bool) (*persistentpodstate.Workload, error) {
	return nil, f.err
}

// All implements Workloads.
func (f forbidden) All() []schema.GroupKind { return nil }
