package sidecarset

import (
	"encoding/json"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/engine/readiness"
)

// Reasons of the condition SidecarSetUpgradable (SS-260).
const (
	reasonAllUpgradable   = "AllSidecarsetUpgradable"
	reasonImmutableFields = "UpdateImmutableField"
)

// UpgradablePatch makes the pod's condition say of the SidecarSet what upgradable says, or nothing of it if
// that is nil; an empty patch if it does already. A message that cannot be read is replaced (SS-260, SS-261).
func UpgradablePatch(pod *corev1.Pod, set string, upgradable *bool, now time.Time) *podpatch.Patch {
	patch := &podpatch.Patch{}
	before := readiness.Condition(pod, pub.SidecarSetUpgradable)
	entries := maps.Clone(UpgradableOf(pod))
	if entries == nil {
		entries = map[string]bool{}
	}
	if upgradable != nil {
		entries[set] = *upgradable
	} else {
		if _, listed := entries[set]; !listed {
			return patch
		}
		delete(entries, set)
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return patch // a map of booleans always encodes
	}

	after := corev1.PodCondition{Type: pub.SidecarSetUpgradable, Status: corev1.ConditionTrue,
		Reason: reasonAllUpgradable, Message: string(text),
		LastTransitionTime: metav1.NewTime(now)}
	for _, can := range entries {
		if !can {
			after.Status, after.Reason = corev1.ConditionFalse, reasonImmutableFields
		}
	}

	if before != nil && before.Status == after.Status {
		after.LastTransitionTime = before.LastTransitionTime
		if before.Reason == after.Reason && before.Message == after.Message {
			return patch
		}
	}
	patch.Condition(after)
	return patch
}
