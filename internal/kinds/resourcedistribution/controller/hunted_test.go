package controller

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/simulation"
)

var secrets = schema.GroupResource{Resource: "secrets"}

// An answer that there is nothing, which comes after the watch told of an object that was created meanwhile, does not hide it.
func TestLateAnswerOfNothing(t *testing.T) {
	w := spread(t)
	creations := 0
	w.Answer = func(r *simulation.Request) error {
		switch {
		case r.Key != w.key("c"):
		case r.Verb == "create" && creations == 0:
			creations++
			return apierrors.NewTimeoutError("lost", 1)
		case r.Verb == "create":
			creations++
		case r.Verb == "get" && w.Get(w.key("c")) == nil: // it is read, then somebody creates one, which the watch tells, and then the answer arrives
			w.foreign("c", "")
			w.Events(100)
			return apierrors.NewNotFound(secrets, "login")
		}
		return merge(r)
	}
	w.Change(simulation.Key{Kind: "Namespace", Name: "c"}, func(o client.Object) { o.SetLabels(team) })
	w.settle()
	w.says("4/2/2 ConflictOccurred[c] NamespaceNotExists[later]")
	if creations != 1 {
		t.Errorf("%d creations of what is there", creations)
	}
}
