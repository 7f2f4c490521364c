package sidecarset_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// TestAPodThatWasNeverUpgradedWaitsForNoUpgrade: the sidecar is given by digest, and the runtime reports the digest of
// the image's configuration, as containerd does of images that were imported. No upgrade has ever begun in the pod.
func TestAPodThatWasNeverUpgradedWaitsForNoUpgrade(t *testing.T) {
	digest := func(c string) string { return "example.com/proxy@sha256:" + strings.Repeat(c, 64) }
	s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", digest("2"))),
		sidecarsettest.Set(sidecarsettest.Image("proxy", digest("1"))), 1, sidecarsettest.Every(func(pod *corev1.Pod) {
			for i := range pod.Status.ContainerStatuses {
				if status := &pod.Status.ContainerStatuses[i]; status.Name == "proxy" {
					status.Image, status.ImageID = "sha256:"+strings.Repeat("c", 64), "sha256:"+strings.Repeat("c", 64)
				}
			}
		}))
	plan := sidecarset.Make(s)
	if plan.Verdicts[0].Action != sidecarset.Upgrade {
		t.Errorf("%s", plan)
	}
}
