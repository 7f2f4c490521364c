package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// unitedLister lists UnitedDeployments as the caches do: without copies.
type unitedLister struct {
	client.Client
	items []appsv1beta1.UnitedDeployment
}

// List implements client.Client.
func (l *unitedLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*appsv1beta1.UnitedDeploymentList).Items = l.items
	return nil
}

// Somebody has 20 UnitedDeployments with selectors of 10,000 values, stored by an earlier release, and a Deployment
// without an owner that has the label of a subset, which changes again and again. The events of the workloads of all
// other namespaces wait behind each of its events, since one goroutine handles them all: an event does not parse the
// selectors again.
func TestLongSelectorsDoNotHoldUpEventsOfOthersWorkloads(t *testing.T) {
	lister := &unitedLister{}
	for i := range 20 {
		u := united(t, uniteddeployment.Deployment, 1, "a")
		u.Name, u.UID, u.Generation = fmt.Sprint("web-", i), types.UID(fmt.Sprint("uid-", i)), 1
		values := make([]string, 10_000)
		for j := range values {
			values[j] = fmt.Sprint("v", j)
		}
		u.Spec.Selector.MatchExpressions = append(u.Spec.Selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: "other", Operator: metav1.LabelSelectorOpNotIn, Values: values})
		lister.items = append(lister.items, *u)
	}
	r := &Reconciler{API: &reconcile.API{Client: lister}}
	child := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "d", Labels: map[string]string{uniteddeployment.SubsetName: "x"}}}
	for key, value := range lister.items[0].Spec.Selector.MatchLabels {
		child.Labels[key] = value
	}
	took := func(events int) time.Duration {
		spent := cputime.Start(t)
		for range events {
			if requests := r.ofChild(t.Context(), child); len(requests) != 20 {
				t.Fatalf("got %v, want a request for each UnitedDeployment", requests)
			}
		}
		return spent()
	}
	took(1)
	if all := took(100); all > time.Second {
		t.Errorf("100 events of a workload take %s of the goroutine that handles the events of all workloads, want 1s at most", all)
	}
}
