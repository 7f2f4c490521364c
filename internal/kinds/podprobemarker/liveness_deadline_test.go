package podprobemarker

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// PPM-121 (part): a request for a container whose preStop hook may take an hour does not end before the container may: the daemon stops
// no container for a request that has ended, so that one whose hook hangs would never be restarted.
func TestARequestForARestartLastsLongerThanTheGracePeriod(t *testing.T) {
	pod := given.Pod("a", enhanced, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(3600)) })
	request := (&Restart{Pod: pod, Container: "app"}).Request()
	if deadline := *request.Spec.ActiveDeadlineSeconds; deadline <= 3600 {
		t.Errorf("of a pod with a grace period of 3600 s the request ends after %d s", deadline)
	}
}
