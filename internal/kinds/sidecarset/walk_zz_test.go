package sidecarset

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// TestPodsThatAFormerUpgradeLeftUnavailable take up the budget already: they are upgraded in their turn, whoever comes before them,
// or nothing would ever be again (SS-213, SS-218, SS-219).
func TestPodsThatAFormerUpgradeLeftUnavailable(t *testing.T) {
	begun := annotated(pub.SidecarSetInPlaceUpdateState,
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
		s    Snapshot
		want []string
	}{
		"behind a ready one by priority": {at(makeSet(first, imageNow("proxy", "proxy:3")), makeSet(), 3, only(0, notReady, begun),
			only(1, labelled("first", "yes"))),
			[]string{"p0 upgrade Outdated", "p1 wait MaxUnavailable", "p2 wait MaxUnavailable"}},
		"partition does not keep it": {at(makeSet(first, imageNow("proxy", "proxy:3"),
			strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Partition = number(1) })), makeSet(), 2,
			only(0, notReady, begun), only(1, labelled("first", "yes"))), []string{"p0 upgrade Outdated", "p1 wait Partition"}},
		"six that are ready wait for their resources, and get another image": {at(makeSet(sized("9"), imageNow("proxy", "proxy:2")),
			makeSet(sized("9")), 6, every(unfit, begun)),
			[]string{"p0 upgrade Outdated", "p1 wait MaxUnavailable", "p2 wait MaxUnavailable", "p3 wait MaxUnavailable",
				"p4 wait MaxUnavailable", "p5 wait MaxUnavailable"}},
		"one of them is out of service": {at(makeSet(sized("9"), imageNow("proxy", "proxy:2")), makeSet(sized("9")), 3, every(unfit, begun),
			only(1, notReady)),
			[]string{"p0 wait MaxUnavailable", "p1 upgrade Outdated", "p2 wait MaxUnavailable"}},
		"one of them stays behind partition": {at(makeSet(sized("9"), imageNow("proxy", "proxy:2"),
			strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.Partition = number(1) })), makeSet(sized("9")), 2,
			every(unfit, begun), only(1, notReady)), []string{"p0 wait Partition", "p1 upgrade Outdated"}},
		"they come before those that would make more unavailable": {at(makeSet(sized("9"), imageNow("proxy", "proxy:2")),
			makeSet(sized("9")), 2, only(1, unfit, begun)), []string{"p0 wait MaxUnavailable", "p1 upgrade Outdated"}},
		"for want of resources": {at(makeSet(sized("4")), makeSet(sized("1")), 2, only(1, unfit, begun)),
			[]string{"p0 wait MaxUnavailable", "p1 upgrade Outdated"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.s.Features.Resize = true
			plan := Make(tt.s)
			if diff := cmp.Diff(tt.want, words(plan)); diff != "" {
				t.Errorf("%s%s", diff, plan)
			}
		})
	}
}

// TestRefusedPodsThatAreNotReady are free of charge and keep their place (SS-219, SS-230).
func TestRefusedPodsThatAreNotReady(t *testing.T) {
	s := at(makeSet(imageNow("proxy", "proxy:2"), strategy(func(u *appsv1beta1.SidecarSetUpdateStrategy) { u.MaxUnavailable = number(0) })),
		makeSet(), 2, only(1, notReady))
	s.Pods[1].UID = "refused"
	s.Known = &Knowledge{}
	s.Known.Learn(Make(s), map[types.UID]error{"refused": errors.New("no")}, planTime.Add(-time.Hour))
	if diff := cmp.Diff([]string{"p0 wait MaxUnavailable", "p1 upgrade Outdated"}, words(Make(s))); diff != "" {
		t.Error(diff)
	}
}
