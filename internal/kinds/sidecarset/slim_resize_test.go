package sidecarset_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/platform/slim"
)

// TestAResizeThatRestartsIsAnUpdateInTheCachesToo: budgets are asked about an UPDATE, as the webhook will ask, where
// a resize restarts containers. The caches keep slim pods, without their resizePolicy (PUB-083, PUB-101).
func TestAResizeThatRestartsIsAnUpdateInTheCachesToo(t *testing.T) {
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Sized("4")), sidecarsettest.Set(sidecarsettest.Sized("1")), 1,
		sidecarsettest.Every(func(pod *corev1.Pod) {
			for i := range pod.Spec.Containers {
				pod.Spec.Containers[i].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU,
					RestartPolicy: corev1.RestartContainer}}
			}
		}))
	for i, pod := range s.Pods {
		kept, err := slim.Pod(pod)
		if err != nil {
			t.Fatal(err)
		}
		s.Pods[i] = kept.(*corev1.Pod)
	}
	limits := &holding{}
	s.Disruptions, s.Features.Resize = limits, true
	plan := sidecarset.Make(s)
	if !slices.Equal(limits.asked, []string{"UPDATE p0"}) {
		t.Errorf("budgets are asked about %q, want UPDATE p0\n%s", limits.asked, plan)
	}
}
