package set

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/registry"
)

// Every kind of the project with a pod template is completed, by its full name if Kubernetes has one of that
// name, and the help names it.
func TestKindsWithPodTemplatesAreListed(t *testing.T) {
	for i := range registry.Kinds {
		kind := &registry.Kinds[i]
		if workloadkind.Of(schema.GroupKind{Group: kind.Group, Kind: kind.Name}).Templates == nil {
			continue
		}
		name := kind.Plural
		if workloadkind.Of(schema.GroupKind{Group: "apps", Kind: kind.Name}).Kind != "" {
			name = kind.Definition()
		}
		if !slices.Contains(kinds, name) {
			t.Errorf("%s is not completed", name)
		}
		if !strings.Contains(resources, strings.ToLower(kind.Name)) {
			t.Errorf("the help does not name %s", kind.Name)
		}
	}
}
