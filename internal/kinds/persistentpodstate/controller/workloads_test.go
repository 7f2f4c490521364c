package controller

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// answers reads nothing but this error.
type answers struct {
	client.Reader
	err error
}

// Get implements client.Reader.
func (a answers) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return a.err
}

// PPS-013 (part): an administrator ended the version of a listed kind of which the manager knew, and all
// places were forgotten as if the workloads had been deleted.
func TestPlacesWereForgottenWhenAVersionOfAListedKindWasServedNoMore(t *testing.T) {
	game := schema.GroupVersionKind{Group: "games.example.com", Version: "v1", Kind: "Game"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{game.GroupVersion()})
	mapper.Add(game, meta.RESTScopeNamespace)
	list, err := workloadspread.ParseListAt(persistentpodstate.AllowListKey, `{"workloads":[{"Group":"games.example.com","Version":"v1","Kind":"Game"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	resource := schema.GroupResource{Group: game.Group, Resource: "games"}
	for name, test := range map[string]struct{ answer, want error }{
		"the object is gone":            {apierrors.NewNotFound(resource, "chess"), nil},
		"the version is served no more": {apierrors.NewGenericServerResponse(404, "get", resource, "chess", "404 page not found", 0, true), errUnknown},
	} {
		k := &Kinds{live: answers{err: test.answer}, mapper: mapper, listed: func() workloadspread.AllowList { return list }, ready: func() bool { return true }}
		got, err := k.Read(t.Context(), "shop", persistentpodstate.Reference{GroupKind: game.GroupKind(), Name: "chess"}, true)
		if got != nil {
			t.Errorf("%s: got %v, want nil\n%v", name, got, err)
		} else if !errors.Is(err, test.want) {
			t.Errorf("%s: error: got %v, want %v\n%v", name, err, test.want, got)
		}
	}
}
