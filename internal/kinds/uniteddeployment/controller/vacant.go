package controller

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// vacancies returns why no child may be created, by subset. The caches may not show yet that a workload of a subset lost its
// controller or has got this one: the UnitedDeployment was deleted without its children, and made again. Each subset
// would have two children then, for good, as nobody else looks after the first. Therefore the API server is asked before the
// first creation.
func (a *application) vacancies(ctx context.Context) (map[string]error, error) {
	taken := map[string]error{}
	kind := a.plan.Template.Kind
	known := map[types.UID]bool{} // whatever their labels say, the plan knows of which subset they are
	for _, child := range slices.Concat(a.snapshot.Children, a.snapshot.Orphans) {
		known[child.Object.GetUID()] = true
	}
	err := reconcile.EachMetadata(ctx, a.Live, kind.GroupVersionKind(), func(object *metav1.PartialObjectMetadata) error {
		owner := metav1.GetControllerOfNoCopy(object)
		switch subset, of := object.Labels[uniteddeployment.SubsetName], uniteddeployment.OwnerOf(object); {
		case object.DeletionTimestamp != nil, known[object.UID]:
		case of == a.Object.UID, orphan(object) && a.matches(object):
			taken[subset] = reconcile.ErrStalePlan // the next plan will know it
		case of != "" && owner.Name == a.Object.Name && taken[subset] == nil:
			taken[subset] = fmt.Errorf("%s %s belongs to an earlier UnitedDeployment of this name; the garbage collector releases or deletes it first",
				kind, object.Name)
		}
		return nil
	}, client.InNamespace(a.Object.Namespace), client.HasLabels{uniteddeployment.SubsetName})
	if err != nil {
		return nil, fmt.Errorf("reading %ss, before one is created: %w", kind, err)
	}
	return taken, nil
}
