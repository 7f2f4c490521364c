package controller

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// ASTS-136, ASTS-138: a policy refuses the pod of one slot. It is not created, and takes no unit of scaleStrategy.maxUnavailable from the others.
func TestASlotThatIsRefusedTakesNoUnitOfMaxUnavailable(t *testing.T) {
	for _, most := range []int32{1, 2} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			s := simulate(1, makeSet(5, inParallel, func(set *appsv1beta1.StatefulSet) {
				n := intstr.FromInt32(most)
				set.Spec.ScaleStrategy = &appsv1beta1.StatefulSetScaleStrategy{MaxUnavailable: &n}
			}), statefulset.Features{})
			denied := s.Deny(func(r *simulation.Request) bool {
				return r.Verb == "create" && (r.Key == podKey("web-0") || r.Key == podKey("web-1"))
			})
			s.RunFor(time.Hour)
			if got := len(s.AllPods()); got != 3 {
				t.Errorf("%d of 3 pods that nobody refuses after an hour, %d requests refused: %s", got, len(*denied), s.describe())
			}
		})
	}
}
