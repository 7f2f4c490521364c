package controller

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/advancedcronjob/advancedcronjobtest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// What an AdvancedCronJob of the same name has left behind, and nobody lets go of, keeps no run of this one
// from beginning. It is let go as soon as that is possible.
func TestALeftoverKeepsNoRunFromBeginning(t *testing.T) {
	w := newWorld(t, 1)
	w.still = true
	w.Change(w.key(), func(o client.Object) {
		o.(*appsv1beta1.AdvancedCronJob).Spec = advancedcronjobtest.CronJob(w.kind, "* * * * *").Spec
	})
	former := advancedcronjobtest.CronJob(w.kind, "* * * * *")
	former.Name, former.UID = "nightly", "former"
	left := advancedcronjobtest.Made(w.kind, former, -time.Hour, advancedcronjobtest.Held)
	key := simulation.Key{Kind: w.kind, Name: left.GetName()}
	w.Store(key, left)
	w.Answer = func(r *simulation.Request) error {
		if r.Verb == "patch" && r.Key.Name == key.Name {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, key.Name, nil)
		}
		return nil
	}
	for range 3 {
		w.quiet()
		w.Pass(time.Minute)
		w.Queue.Add()
	}
	w.quiet()
	if n := len(w.runs); n == 0 {
		t.Fatal("no run began: ", w.describe())
	}
	w.Answer = nil
	w.Pass(time.Minute)
	w.Queue.Add()
	w.quiet()
	if len(w.Get(key).GetFinalizers()) > 0 {
		t.Error("it is not let go: ", w.describe())
	}
}
