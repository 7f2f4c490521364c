package rollout

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/registry"
)

// Every kind of the project that has a field which pauses it is completed for pause and resume, and every one
// that is updated in place also for the other commands.
func TestWorkloadsAreListed(t *testing.T) {
	for i := range registry.Kinds {
		of := schema.GroupKind{Group: registry.Kinds[i].Group, Kind: registry.Kinds[i].Name}
		kind, name := workloadkind.Of(of), strings.ToLower(of.Kind)
		if workloadkind.Of(schema.GroupKind{Group: "apps", Kind: of.Kind}).Kind != "" {
			name += "." + of.Group
		}
		if kind.Paused != nil && !slices.Contains(pausable, name) {
			t.Errorf("%s is not completed for pause and resume", name)
		}
		if kind.InPlace && (!slices.Contains(versioned, name) || !slices.Contains(followed, name)) {
			t.Errorf("%s is not completed for history, undo, status and restart", name)
		}
	}
}
