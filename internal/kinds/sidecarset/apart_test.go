package sidecarset_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestAResizeThatWasRefusedBefore: the node could not give the pod what it was asked for, and it is asked for
// less now. What kubelet said of the former size is no reason to call the pod one that cannot be upgraded
// (SS-W02).
func TestAResizeThatWasRefusedBefore(t *testing.T) {
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("2")), sidecarsettest.Set(sidecarsettest.Sized("2")), 1,
		sidecarsettest.Every(func(pod *corev1.Pod) {
			pod.Generation = 7
			pod.Annotations[pub.SidecarSetInPlaceUpdateState] = `{"mesh":{"revision":"x","updateTimestamp":"2030-01-01T00:00:00Z"}}`
			pod.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: pub.SidecarSetUpgradable,
				Status: corev1.ConditionTrue, Message: `{"mesh":true}`},
				corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible,
					ObservedGeneration: 6})
		}))
	s.Features.Resize = true
	if v := sidecarset.Make(s).Verdicts[0]; v.Reason != sidecarset.ReasonUpgrading || v.Upgradable != nil {
		t.Errorf("%+v", v)
	}
	s.Pods[0].Status.Conditions[2].ObservedGeneration = 7
	if v := sidecarset.Make(s).Verdicts[0]; v.Reason != sidecarset.ReasonResizeInfeasible || v.Upgradable == nil || *v.Upgradable {
		t.Errorf("%+v", v)
	}
}
