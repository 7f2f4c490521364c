package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
)

// setLister lists sets as the caches do: without copies.
type setLister struct {
	client.Client
	sets []appsv1beta1.DaemonSet
}

func (l *setLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*appsv1beta1.DaemonSetList).Items = l.sets
	return nil
}

// ADS-040 (part): a tenant has 20 DaemonSets with the longest selector that is admitted, and changes a pod that nobody controls again and again. The events of the pods of
// all other namespaces wait behind each of its events, since one goroutine handles them all: an event costs no more than with selectors of as many labels and values as are
// admitted in all other selectors that are evaluated at each event.
func TestLongSelectorsOfSetsDoNotHoldUpEventsOfOthersPods(t *testing.T) {
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", Labels: map[string]string{"app": "agent"}}}
	event := func(terms int) (admitted bool, each time.Duration) {
		lister := &setLister{}
		for i := range 20 {
			set := makeSet(func(set *appsv1beta1.DaemonSet) {
				set.Name, set.UID = fmt.Sprint("set-", i), types.UID(fmt.Sprint("set-", i))
				for k := range terms {
					set.Spec.Selector.MatchExpressions = append(set.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
						Key: fmt.Sprintf("k%d", k), Operator: metav1.LabelSelectorOpDoesNotExist})
				}
			})
			if i == 0 && len(daemonset.Validate(daemonset.WrittenInV1beta1(set), nil)) > 0 {
				return false, 0
			}
			lister.sets = append(lister.sets, *set)
		}
		kube := &Kube{Reader: podapply.Reader{API: &reconcile.API{Client: lister}}}
		kube.setsOf(t.Context(), orphan) // reads the selectors
		spent := cputime.Start(t)
		for range 10 {
			if got := len(kube.setsOf(t.Context(), orphan)); got != 20 {
				t.Fatalf("%d sets", got)
			}
		}
		return true, spent() / 10
	}
	admitted, usual := event(fieldcheck.MostSelectorTerms / 2)
	if !admitted {
		t.Fatal("a usual selector is not admitted")
	}
	if admitted, long := event(19000); admitted && long > 10*usual {
		t.Errorf("each event of one pod takes %s of the goroutine that handles the events of all pods; with selectors of %d labels and values it takes %s",
			long, fieldcheck.MostSelectorTerms/2, usual)
	}
}
