package controller

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
)

// A UnitedDeployment is deleted without its children and made again (kubectl delete --cascade=orphan, kubectl
// create). The watch of UnitedDeployments is ahead of that of their children: it shows the new one while the
// children still seem to be those of the former one. Each subset keeps its one child, and its pods.
func TestMadeAgainBeforeTheCacheShowsItsOrphans(t *testing.T) {
	for _, kind := range played {
		w := newWorld(t, 1, []uniteddeployment.Kind{kind}, united(t, kind, 3, "a", "b", "c"))
		w.rest()
		pods := podNames(w)

		w.still = true // the garbage collector has nothing to do with it: all are released in time
		for _, of := range []string{kind.Name(), "ControllerRevision"} {
			for _, o := range w.List(of, false) {
				w.Change(w.KeyOf(of, o), func(o client.Object) { o.SetOwnerReferences(nil) })
			}
		}
		w.Remove(key)
		w.Store(key, united(t, kind, 3, "a", "b", "c"))

		ahead := func() bool {
			for i, e := range w.View.Feed {
				if e.Key.Kind != kind.Name() && e.Key.Kind != "Pod" {
					w.DeliverOne(i)
					return true
				}
			}
			return false
		}
		for range 3 { // the revision that was left behind is adopted first
			for ahead() {
			}
			w.Queue.Add()
			w.Manage()
		}

		w.still = false
		w.rest()

		if n := len(w.children()); n != 3 {
			t.Errorf("%s: number of children: got %d, want 3, one of each subset", kind, n)
		}
		if after := podNames(w); !slices.Equal(pods, after) {
			t.Errorf("%s: pods: got %v, want %v", kind, after, pods)
		}
	}
}
