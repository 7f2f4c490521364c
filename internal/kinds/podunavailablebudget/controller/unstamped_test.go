package controller

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestPodsThatMayNotBeAnnotatedCount: a policy of the namespace forbids that the manager annotates the pods of a
// ReplicaSet, whose names do not end with a number. "Nothing depends on whether [the annotation] was written, kept or
// removed" (PUB-070): they count as in service, and one of them may go.
func TestPodsThatMayNotBeAnnotatedCount(t *testing.T) {
	for _, refused := range []bool{false, true} {
		r := newWorld(1)
		key := simulation.Key{Kind: "ReplicaSet", Name: "web-7d9f"}
		r.replicaSet(key.Name, "web", 3, nil)
		for _, name := range []string{"web-7d9f-kx2bq", "web-7d9f-m4tzp", "web-7d9f-zzlkw"} {
			r.running(name, map[string]string{"app": "web"}, controlledBy(r.Get(key), "apps/v1", "ReplicaSet")...)
		}
		r.protect("b", target("apps/v1", "ReplicaSet", key.Name))
		tries := 0
		r.Answer = func(request *simulation.Request) error {
			if refused && request.Verb == "patch" && request.Key.Kind == "Pod" {
				tries++
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, request.Key.Name, errors.New("a policy forbids it"))
			}
			return nil
		}
		r.beginOnTime()
		r.wait(5 * time.Minute)
		if s := r.budget("b").Status; s.CurrentAvailable != 3 || s.UnavailableAllowed != 1 {
			t.Errorf("patches are refused: %t (%d tries): 3 of 3 pods are in service; the budget counts %d, and allows %d; used by: %s",
				refused, tries, s.CurrentAvailable, s.UnavailableAllowed, s.UsedBy)
		}
		if answer := r.book(t, r.pods()[0], policyv1beta1.Evict); !answer.Allowed {
			t.Errorf("patches are refused: %t: no drain gets further: %s", refused, answer.Reason)
		}
	}
}
