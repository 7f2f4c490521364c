package podunavailablebudget

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// Why says why a pod is not in service, empty if it is (PUB-055, PUB-056). doubt: that is not known for sure,
// because its record of an update cannot be read: such a pod is not counted on, and not free to be disrupted
// either (PUB-D1).
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

// unavailableLabel is the first label by which somebody says that the pod is out of service, empty if there
// is none.
func unavailableLabel(pod *corev1.Pod) string {
	first := ""
	for key := range pod.Labels {
		if strings.HasPrefix(key, pub.UnavailablePodPrefix) && (first == "" || key < first) {
			first = key
		}
	}
	return first
}

// Free tells whether the pod may be disrupted whatever its budget says (PUB-086, rules 1 and 2), and why. now
// is when it is asked.
func Free(pod *corev1.Pod, now time.Time) (why string, free bool) {
	if unprotected, err := strconv.ParseBool(pod.Annotations[pub.NoProtect]); err == nil && unprotected {
		return fmt.Sprintf("annotation %s", pub.NoProtect), true
	}
	why, doubt := Why(pod, now)
	return why, why != "" && !doubt
}
