package podprobemarker

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// Restart is a container whose liveness probe failed (PPM-121).
type Restart struct {
	Pod       *corev1.Pod
	Container string
	// Count is how often it restarted before, which makes the request for this restart the only one.
	Count   int32
	Message string
	// Grace is how long it may take to end, if the probe says so.
	Grace *int64
}

func (s *Snapshot) liveness(*corev1.Pod) []wish { return nil }

func (s *Snapshot) restarts(*Plan, *corev1.Pod, map[string]*appsv1alpha1.ContainerProbeState) {}

var _ = time.Second
