package controller

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/api/pub"
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
