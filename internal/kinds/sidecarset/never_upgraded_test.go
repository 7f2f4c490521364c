package sidecarset_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// SS-215 (part): a pod that was never upgraded waits for no upgrade, whatever identifier the runtime reports of the image of its
// sidecar: the digest of its configuration, as containerd does of imported images, or another one of its digests, as CRI-O does.
func TestAPodThatWasNeverUpgradedWaitsForNoUpgrade(t *testing.T) {
	digest := func(c string) string { return "example.com/proxy@sha256:" + strings.Repeat(c, 64) }
	for image, id := range map[string]string{"sha256:c": "sha256:" + strings.Repeat("c", 64), "example.com/proxy:1": digest("c")} {
		s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", digest("2"))),
			sidecarsettest.Set(sidecarsettest.Image("proxy", digest("1"))), 1, sidecarsettest.Every(func(pod *corev1.Pod) {
				for i := range pod.Status.ContainerStatuses {
					if status := &pod.Status.ContainerStatuses[i]; status.Name == "proxy" {
						status.Image, status.ImageID = image, id
					}
				}
			}))
		if plan := sidecarset.Make(s); plan.Verdicts[0].Action != sidecarset.Upgrade {
			t.Errorf("image ID %s: %s", id, plan)
		}
	}
}
