package podapply

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/engine/revision"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestRevisionOfALongNameThatTheCacheLacks: the name of a revision holds a part of a long name only, and the
// pods its short hash (CS-081).
func TestRevisionOfALongNameThatTheCacheLacks(t *testing.T) {
	owner := &corev1.Pod{} // any object has a name
	owner.Namespace, owner.Name = "default", strings.Repeat("w", 237)
	cluster, asked := simulation.New(1), ""
	cluster.Answer = func(r *simulation.Request) error { asked = r.Key.Name; return nil }
	a := NewExecution(cluster.API().For(owner.UID), nil, owner, nil, &podplan.Plan{})
	if err := a.ensureRevisionAbsent(t.Context(), "7d9f44cb88"); err != nil {
		t.Errorf("looking up the revision: %v", err)
	}
	if want := revision.Name(owner.Name, "7d9f44cb88"); asked != want {
		t.Errorf("the revision that was asked for: got %q, want %q", asked, want)
	}
}
