package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// IPU-184, ASTS-136: one pod whose update in place a policy refuses does not hold up the others, although it counts as available only minReadySeconds after each attempt.
func TestARefusedUpdateHoldsUpNoOtherWithMinReadySeconds(t *testing.T) {
	for _, seconds := range []int32{0, 30, 90, 300} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			s := simulate(1, makeSet(5, unordered, inPlace, func(set *appsv1beta1.StatefulSet) {
				set.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds = &seconds
			}), statefulset.Features{})
			s.RunFor(30 * time.Minute)
			denied := s.Deny(func(r *simulation.Request) bool {
				return r.Verb == "patch" && r.Key == podKey("web-4") && strings.Contains(string(r.Body), "nginx:2")
			})
			s.Edit(image("nginx:2"))
			s.RunFor(3 * time.Hour)
			if got := s.set().Status.UpdatedReplicas; got < 4 {
				t.Errorf("%d of 4 other pods are updated after three hours; %d refused: %s", got, len(*denied), s.describe())
			}
		})
	}
}
