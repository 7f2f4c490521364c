package sidecarset_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// SS-215 as amended: "a container without a record is consistent, whatever identifier the runtime reports of its image". An image has
// several digests, that of its index and that of its manifest, and the runtime (CRI-O) reports another one than the spec names.
func TestAPodThatWasNeverUpgradedWhoseRuntimeReportsAnotherDigest(t *testing.T) {
	digest := func(c string) string { return "example.com/proxy@sha256:" + strings.Repeat(c, 64) }
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", digest("2"))),
		sidecarsettest.Set(sidecarsettest.Image("proxy", digest("1"))), 1, sidecarsettest.Every(func(pod *corev1.Pod) {
			for i := range pod.Status.ContainerStatuses {
				if status := &pod.Status.ContainerStatuses[i]; status.Name == "proxy" {
					status.Image, status.ImageID = "example.com/proxy:1", digest("c")
				}
			}
		}))
	plan := sidecarset.Make(s)
	if plan.Verdicts[0].Action != sidecarset.Upgrade {
		t.Errorf("%s", plan)
	}
}
