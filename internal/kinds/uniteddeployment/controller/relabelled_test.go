package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
)

// Somebody relabels the workload of a subset, before the subset is renamed or another one of that name is added. UD-062: the subset of a
// workload is that of its selector, whatever its label says. The new subset gets a workload.
func TestANewSubsetWhoseNameAnotherChildHasAsALabel(t *testing.T) {
	for _, kind := range played {
		for name, subsets := range map[string][]string{"added": {"a", "b", "c"}, "renamed": {"a", "c"}} {
			w := newWorld(t, 1, []uniteddeployment.Kind{kind}, united(t, kind, 3, "a", "b"))
			w.rest()
			for _, c := range w.children() {
				if c.Subset == "b" {
					w.Change(w.keyOf(c), func(o client.Object) {
						labels := o.GetLabels()
						labels[uniteddeployment.SubsetName] = "c"
						o.SetLabels(labels)
					})
				}
			}
			w.Edit(func(u *appsv1beta1.UnitedDeployment) {
				u.Spec.Topology.Subsets = united(t, kind, 3, subsets...).Spec.Topology.Subsets
			})
			w.ActFor(time.Hour)
			there := map[string]int{}
			for _, c := range w.children() {
				there[c.Subset]++
			}
			if there["c"] != 1 || len(there) != len(subsets) {
				t.Errorf("%s, subset c %s: an hour later the children by subset are %v, want one of each of %v; condition: %+v; events: %q",
					kind, name, there, subsets, w.united().Status.Conditions, w.Recorded)
			}
		}
	}
}
