package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// missingEvery is how often all pods are looked through for those that were never injected.
const missingEvery = time.Minute

// watchMissing looks through all pods once in a while, as long as the context lives.
func (r *reconciler) watchMissing(ctx context.Context) error {
	said := map[types.UID]sidecarset.Missing{}
	ticker := time.NewTicker(missingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := r.missing(ctx, said); err != nil {
				log.FromContext(ctx).Error(err, "Counting pods that were never injected")
			}
		}
	}
}

// missing shows the numbers, and tells of one that grew since it was told.
func (r *reconciler) missing(ctx context.Context, said map[types.UID]sidecarset.Missing) error {
	var list appsv1beta1.SidecarSetList
	if err := r.pass.Kube.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing SidecarSets: %w", err)
	}
	if len(list.Items) == 0 {
		return nil
	}

	namespaces := namespaceList()
	if err := r.pass.Kube.Client.List(ctx, namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}

	byName := map[string]map[string]string{}
	for i := range namespaces.Items {
		byName[namespaces.Items[i].Name] = namespaces.Items[i].Labels
	}

	sets := make([]*appsv1beta1.SidecarSet, 0, len(list.Items))
	for i := range list.Items {
		sets = append(sets, &list.Items[i])
	}

	counts := sidecarset.MissingPods(sets, r.pass.Kube.Pods.All, byName, r.pass.Kube.Namespace)
	before := maps.Clone(said)
	clear(said) // of those that are gone nothing is remembered
	for _, set := range sets {
		missing := counts[set.Name]
		r.meters.notInjected.WithLabelValues(set.Name, "before").Set(float64(missing.Pods - missing.Escaped))
		r.meters.notInjected.WithLabelValues(set.Name, "after").Set(float64(missing.Escaped))
		if kind := missing.Worth(before[set.UID]); kind != "" && !set.Spec.InjectionStrategy.Paused {
			r.pass.Applier.Events.Event(set, kind, "PodsNotInjected", missing.String())
		}
		said[set.UID] = missing
	}

	return nil
}
