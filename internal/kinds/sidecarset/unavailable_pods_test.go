package sidecarset_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestPodsThatAFormerUpgradeLeftUnavailable take up the budget already: they are upgraded in their turn,
// whoever comes before them, or nothing would ever be again (SS-213, SS-218, SS-219).
func TestPodsThatAFormerUpgradeLeftUnavailable(t *testing.T) {
	begun := sidecarsettest.Annotated(pub.SidecarSetInPlaceUpdateState,
		`{"mesh":{"revision":"bad","updateTimestamp":"2030-01-01T00:00:00Z","lastContainerStatuses":{}}}`)
	first := func(set *appsv1beta1.SidecarSet) {
		set.Spec.UpdateStrategy.PriorityStrategy = &pub.UpdatePriorityStrategy{WeightPriority: []pub.UpdatePriorityWeightTerm{
			{Weight: 100, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"first": "yes"}}}}}
	}
	unfit := func(pod *corev1.Pod) { // was given 9 cores, which it did not get
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}
		pod.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	}
	for name, tt := range map[string]struct {
		s    sidecarset.Snapshot
		want []string
	}{
		"behind a ready one by priority": {sidecarsettest.Snapshot(sidecarsettest.Set(first, sidecarsettest.Image("proxy", "proxy:3")),
			sidecarsettest.Set(), 3, only(0, sidecarsettest.NotReady, begun),
			only(1, sidecarsettest.Labelled("first", "yes"))),
			[]string{"p0 upgrade Outdated", "p1 wait MaxUnavailable", "p2 wait MaxUnavailable"}},
		"partition does not keep it": {sidecarsettest.Snapshot(sidecarsettest.Set(first, sidecarsettest.Image("proxy", "proxy:3"),
			sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Partition = new(intstr.FromInt32(1)) })), sidecarsettest.Set(), 2,
			only(0, sidecarsettest.NotReady, begun), only(1, sidecarsettest.Labelled("first", "yes"))),
			[]string{"p0 upgrade Outdated", "p1 wait Partition"}},
		"six that are ready wait for their resources, and get another image": {sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("9"), sidecarsettest.Image("proxy", "proxy:2")),
			sidecarsettest.Set(sidecarsettest.Sized("9")), 6, sidecarsettest.Every(unfit, begun)),
			[]string{"p0 upgrade Outdated", "p1 wait MaxUnavailable", "p2 wait MaxUnavailable", "p3 wait MaxUnavailable",
				"p4 wait MaxUnavailable", "p5 wait MaxUnavailable"}},
		"one of them is out of service": {sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("9"),
			sidecarsettest.Image("proxy", "proxy:2")), sidecarsettest.Set(sidecarsettest.Sized("9")), 3, sidecarsettest.Every(unfit, begun),
			only(1, sidecarsettest.NotReady)),
			[]string{"p0 wait MaxUnavailable", "p1 upgrade Outdated", "p2 wait MaxUnavailable"}},
		"one of them stays behind partition": {sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("9"),
			sidecarsettest.Image("proxy", "proxy:2"),
			sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Partition = new(intstr.FromInt32(1)) })),
			sidecarsettest.Set(sidecarsettest.Sized("9")), 2,
			sidecarsettest.Every(unfit, begun), only(1, sidecarsettest.NotReady)), []string{"p0 wait Partition", "p1 upgrade Outdated"}},
		"they come before those that would make more unavailable": {sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("9"),
			sidecarsettest.Image("proxy", "proxy:2")),
			sidecarsettest.Set(sidecarsettest.Sized("9")), 2, only(1, unfit, begun)), []string{"p0 wait MaxUnavailable", "p1 upgrade Outdated"}},
		"for want of resources": {sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("4")),
			sidecarsettest.Set(sidecarsettest.Sized("1")), 2, only(1, unfit, begun)),
			[]string{"p0 wait MaxUnavailable", "p1 upgrade Outdated"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.s.Features.Resize = true
			plan := sidecarset.Make(tt.s)
			if diff := cmp.Diff(tt.want, words(plan)); diff != "" {
				t.Errorf("what is done (-want +got):\n%s\n%s", diff, plan)
			}
		})
	}
}

// TestRefusedPodsThatAreNotReady are free of charge and keep their place (SS-219, SS-230).
func TestRefusedPodsThatAreNotReady(t *testing.T) {
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2"),
		sidecarsettest.Strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = new(intstr.FromInt32(0)) })),
		sidecarsettest.Set(), 2, only(1, sidecarsettest.NotReady))
	s.Pods[1].UID = "refused"
	s.Known = &sidecarset.Knowledge{}
	s.Known.Learn(sidecarset.Make(s), map[types.UID]error{"refused": errors.New("no")}, sidecarsettest.Now.Add(-time.Hour))
	if diff := cmp.Diff([]string{"p0 wait MaxUnavailable", "p1 upgrade Outdated"}, words(sidecarset.Make(s))); diff != "" {
		t.Errorf("what is done (-want +got):\n%s", diff)
	}
}
