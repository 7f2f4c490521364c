package controller

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/simulation"
)

// IPU-184: one pod whose update in place a policy refuses does not hold up the others, although it counts as available only minReadySeconds after each attempt.
func TestARefusedUpdateHoldsUpNoOtherWithMinReadySeconds(t *testing.T) {
	for name, tt := range map[string]struct {
		seconds int32
		strict  string
	}{"0": {}, "90": {90, ""}, "0, strict": {0, "true"}, "90, strict": {90, "true"}} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, makeSet(inPlace, annotated(pub.DaemonSetStrictMaxUnavailable, tt.strict), func(set *appsv1beta1.DaemonSet) { set.Spec.MinReadySeconds = tt.seconds }),
				daemonset.Features{}, "n1", "n2", "n3")
			s.Node.Daemon = true
			s.RunFor(30 * time.Minute)
			refused := 0
			s.Answer = func(r *simulation.Request) error {
				pod, _ := s.Get(r.Key).(*corev1.Pod)
				if r.Verb == "patch" && r.Subresource == "" && pod != nil && pod.Spec.NodeName == "n3" {
					refused++
					return apierrors.NewForbidden(corev1.Resource("pods"), r.Key.Name, context.Canceled)
				}
				return nil
			}
			s.Edit(image("agent:2"))
			s.RunFor(3 * time.Hour)
			if n := s.with("agent:2"); n != 2 {
				t.Errorf("after three hours %d of 2 other pods are updated; %d refused: %s", n, refused, s.describe())
			}
		})
	}
}
