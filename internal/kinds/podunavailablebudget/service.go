package podunavailablebudget

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/disruption"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// Why returns why a pod is not in service, or an empty string if it is (PUB-055, PUB-056). doubt reports that
// this is not known for sure, because the pod's record of an update cannot be parsed. Such a pod does not
// count as in service, but may not be disrupted freely either (PUB-D1).
func Why(pod *corev1.Pod, now time.Time) (why string, doubt bool) {
	switch {
	case pod.DeletionTimestamp != nil:
		return "being deleted", false
	case pod.Status.Phase != corev1.PodRunning:
		return "phase " + string(pod.Status.Phase), false
	case !readiness.Ready(pod):
		return "not ready", false
	}
	if label := unavailableLabel(pod); label != "" {
		return "label " + label, false
	}

	progress, err := inplace.Progress(pod, now)
	switch {
	case err != nil:
		return err.Error(), true
	case !progress.Complete:
		return "being updated in place", false
	}
	upgrading, err := sidecarset.Upgrading(pod)
	switch {
	case err != nil:
		return err.Error(), true
	case upgrading != "":
		return "a sidecar is being upgraded: " + upgrading, false
	}

	return "", false
}

// unavailableLabel returns the first label that marks the pod as out of service, or an empty string.
func unavailableLabel(pod *corev1.Pod) string {
	first := ""
	for key := range pod.Labels {
		if strings.HasPrefix(key, pub.UnavailablePodPrefix) && (first == "" || key < first) {
			first = key
		}
	}
	return first
}

// Free reports whether the pod may be disrupted regardless of its budget (PUB-086, rules 1 and 2), and why.
func Free(pod *corev1.Pod, now time.Time) (why string, free bool) {
	if exempt(pod) {
		return fmt.Sprintf("annotation %s", pub.NoProtect), true
	}
	why, doubt := Why(pod, now)
	return why, why != "" && !doubt
}

// MayServeAgain reports whether a pod that is out of service may be in service, again or for the first time, before an
// operation that was allowed is done: an API server deletes pods a while after it has asked about them. A pod without a
// node is not there that soon.
func MayServeAgain(pod *corev1.Pod, by disruption.Operation) bool {
	phase := pod.Status.Phase
	starts := phase == corev1.PodPending && pod.Spec.NodeName != ""
	return deletes(by) && pod.DeletionTimestamp == nil && (starts || phase == corev1.PodRunning) && !exempt(pod)
}

// exempt reports whether no budget protects the pod.
func exempt(pod *corev1.Pod) bool {
	yes, err := strconv.ParseBool(pod.Annotations[pub.NoProtect])
	return err == nil && yes
}
