package controller

import (
	"testing"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/kindtest"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestPodsThatWaitForTheirResourcesAreUpgradedOneByOne: pods whose node has not given a sidecar its resources
// yet serve all the same. A new image restarts their sidecar within maxUnavailable, not in all of them at
// once (SS-219, SS-W02).
func TestPodsThatWaitForTheirResourcesAreUpgradedOneByOne(t *testing.T) {
	s := simulate(1, sidecarsettest.Set(sidecarsettest.Sized("1"),
		sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = kindtest.Text("100%") })), 6)
	s.features.Resize, s.node.Unfit = true, map[string]bool{}
	s.startManager()
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	for _, pod := range s.pods() {
		s.node.Unfit[string(pod.UID)] = true
	}
	s.change(sidecarsettest.Sized("9"))
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	for _, pod := range s.pods() {
		if !readiness.Ready(pod) || pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "9" {
			t.Fatal(s.describe())
		}
	}
	most := 0
	s.AfterWrite = func(simulation.Write) {
		out := 0
		for _, pod := range s.pods() {
			if !readiness.Ready(pod) || pod.Status.ContainerStatuses[0].Image != sidecarset.ImageOf(pod, "proxy") {
				out++
			}
		}
		most = max(most, out)
	}
	s.change(sidecarsettest.Image("proxy", "proxy:2"), sidecarsettest.Sized("2"),
		sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = kindtest.Number(1) }))
	for range 20 {
		s.Round()
	}
	s.node.Unfit = nil
	if err := s.Settle(300); err != nil {
		t.Fatal(err)
	}
	if status := s.set().Status; most != 1 || status.UpdatedReadyPods != 6 {
		t.Errorf("%d pods at once, maxUnavailable 1; %+v", most, status)
	}
}
