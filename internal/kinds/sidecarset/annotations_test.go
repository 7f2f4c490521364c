package sidecarset_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// SS-D07: anybody may write null into an annotation of a pod; what was read can be written to all the same.
func TestAnnotationsOfNull(t *testing.T) {
	for name, s := range map[string]sidecarset.Snapshot{
		"the state of updates": sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2")), sidecarsettest.Set(), 1,
			sidecarsettest.Every(sidecarsettest.Annotated(pub.SidecarSetInPlaceUpdateState, "null"))),
		"the records": sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2")), sidecarsettest.Set(), 1,
			sidecarsettest.Every(sidecarsettest.Annotated(pub.SidecarSetHash, "null"),
				sidecarsettest.Annotated(pub.SidecarSetHashWithoutImage, `{"mesh":null}`))),
		"the working containers": sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:2"))),
			sidecarsettest.Set(sidecarsettest.Containers(sidecarsettest.Hot("proxy", "proxy:1"))), 1,
			sidecarsettest.Every(sidecarsettest.Annotated(pub.SidecarSetWorkingHotUpgradeContainer, "null"))),
		"the condition": sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", "proxy:2")), sidecarsettest.Set(), 1,
			sidecarsettest.Every(func(pod *corev1.Pod) {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: pub.SidecarSetUpgradable, Message: "null"})
			})),
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range sidecarset.Make(s).Verdicts {
				if v.Change != nil {
					if _, err := v.Change(v.Pod, sidecarsettest.Now); err != nil {
						t.Errorf("changing pod %s: %v", v.Pod.Name, err)
					}
				}
				if v.Upgradable != nil && sidecarset.UpgradablePatch(v.Pod, "mesh", v.Upgradable, sidecarsettest.Now).Empty() {
					t.Error("the condition is not written")
				}
			}
		})
	}
	if working, err := sidecarset.ReadWorkingContainers("null"); err != nil {
		t.Errorf("unexpected error: %v; %v, %v: admission writes to it", err, working, err)
	} else if working == nil {
		t.Errorf(`working containers of null: got nil, want a value; %v, %v: admission writes to it`, working, err)
	}
}
