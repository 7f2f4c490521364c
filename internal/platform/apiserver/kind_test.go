package apiserver

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A kind that users list is read in the version that they give, or in another if that is not served any more.
func TestDocument(t *testing.T) {
	game := schema.GroupVersion{Group: "game.example.com", Version: "v2"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{game})
	mapper.Add(game.WithKind("Game"), meta.RESTScopeNamespace)
	mapper.Add(schema.GroupVersionKind{Group: game.Group, Version: "v1", Kind: "Game"}, meta.RESTScopeNamespace)

	for version, want := range map[string]string{"": "v2", "v1": "v1", "v2": "v2", "v0": "v2"} {
		document, err := Document(mapper, schema.GroupVersionKind{Group: game.Group, Version: version, Kind: "Game"})
		if err != nil {
			t.Errorf("version %q: %v", version, err)
		} else if got := document.GroupVersionKind().Version; got != want {
			t.Errorf("version %q: got %q, want %q", version, got, want)
		}
	}

	_, err := Document(mapper, game.WithKind("Set"))
	if !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is not served: got %v, want a NoMatch error", err)
	}
}
