package sidecarset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// SS-D07: anybody may write null into an annotation of a pod; what was read can be written to all the same.
func TestAnnotationsOfNull(t *testing.T) {
	for name, s := range map[string]Snapshot{
		"the state of updates": at(makeSet(imageNow("proxy", "proxy:2")), makeSet(), 1,
			every(annotated(pub.SidecarSetInPlaceUpdateState, "null"))),
		"the records": at(makeSet(imageNow("proxy", "proxy:2")), makeSet(), 1, every(annotated(pub.SidecarSetHash, "null"),
			annotated(pub.SidecarSetHashWithoutImage, `{"mesh":null}`))),
		"the working containers": at(makeSet(containers(hot("proxy", "proxy:2"))), makeSet(containers(hot("proxy", "proxy:1"))), 1,
			every(annotated(pub.SidecarSetWorkingHotUpgradeContainer, "null"))),
		"the condition": at(makeSet(imageNow("proxy", "proxy:2")), makeSet(), 1, every(func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: pub.SidecarSetUpgradable, Message: "null"})
		})),
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range Make(s).Verdicts {
				if v.Change != nil {
					if _, err := v.Change(v.Pod, planTime); err != nil {
						t.Error(err)
					}
				}
				if v.Upgradable != nil && UpgradablePatch(v.Pod, "mesh", v.Upgradable, planTime).Empty() {
					t.Error("the condition is not written")
				}
			}
		})
	}
	if working, err := ReadWorkingContainers("null"); err != nil || working == nil {
		t.Errorf("%v, %v: admission writes to it", working, err)
	}
}
