package controller

import (
	"strings"
	"testing"
	"time"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// IPU-184, with a grace period: one pod whose new image a policy refuses does not hold up the others, and is back in service soon after the user has taken the
// template back.
func TestARefusedImageWithAGracePeriod(t *testing.T) {
	s := simulate(1, makeSet(5, unordered, inPlace, func(set *appsv1beta1.StatefulSet) {
		set.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: 10}
	}), statefulset.Features{})
	s.RunFor(5 * time.Minute)
	denied := s.Deny(func(r *simulation.Request) bool {
		return r.Verb == "patch" && r.Key == podKey("web-4") && strings.Contains(string(r.Body), `"image":"nginx:2"`)
	})
	s.Edit(image("nginx:2"))
	s.RunFor(time.Hour)
	if got := s.set().Status.UpdatedReplicas; got < 4 {
		t.Errorf("%d of 4 other pods are updated after an hour; %d refused: %s", got, len(*denied), s.describe())
	}
	s.Edit(image("nginx:1"))
	s.RunFor(time.Hour)
	if got := s.set().Status.AvailableReplicas; got != 5 {
		t.Errorf("%d of 5 pods are available an hour after the template was taken back; %d refused: %s", got, len(*denied), s.describe())
	}
}
