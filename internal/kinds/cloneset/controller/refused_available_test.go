package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// IPU-184: "so that one that a policy protects does not hold up the others". Each attempt takes the pod out of service, and it counts as available again only
// minReadySeconds later: nevertheless the others are updated.
func TestARefusedUpdateHoldsUpNoOtherWithMinReadySeconds(t *testing.T) {
	for _, seconds := range []int32{0, 30, 59, 90, 300} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			s := simulate(1, clonesettest.Set(5, clonesettest.MaxUnavailable(1), clonesettest.MinReadySeconds(seconds)), cloneset.Features{})
			s.RunFor(30 * time.Minute)
			if err := s.Settle(1000); err != nil {
				t.Fatal(err)
			}
			protected, refused := "", 0
			s.Answer = func(r *simulation.Request) error {
				if r.Key.Kind != "Pod" || r.Verb != "patch" || !strings.Contains(string(r.Body), `"image"`) {
					return nil
				}
				if protected == "" {
					protected = r.Key.Name
				}
				if r.Key.Name != protected {
					return nil
				}
				refused++
				return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, errors.New("a policy says no"))
			}
			s.Edit(clonesettest.Image("nginx:2"))
			s.RunFor(3 * time.Hour)
			if got := s.set().Status.UpdatedReplicas; got < 4 {
				t.Errorf("%d of 4 other pods are updated after three hours; %d refused: %s", got, refused, s.describe())
			}
		})
	}
}
