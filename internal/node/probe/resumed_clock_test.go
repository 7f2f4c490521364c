package probe

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// PPM-082, PPM-084: the node booted with a clock that was eight hours ahead, and the daemon reported results by it. NTP
// set the clock back, and while the daemon was being replaced the container ended and kubelet started another one. That
// one has no result yet: the time of the last one, which has not come, does not tell that it is about this container. A
// container that started by the former clock, before the result, is the one that it is about.
func TestAResultFromTheFutureIsNotOfTheNextContainer(t *testing.T) {
	for started, want := range map[time.Duration]appsv1alpha1.ProbeState{
		5 * time.Second:           appsv1alpha1.ProbeUnknown,
		7 * time.Hour:             appsv1alpha1.ProbeSucceeded,
		8*time.Hour + time.Second: appsv1alpha1.ProbeUnknown,
	} {
		p := NewProber(definition(thresholds(3, 3)), noon)
		p.Resume(appsv1alpha1.ContainerProbeState{Name: "role#primary", State: "Succeeded", Message: "yes",
			LastProbeTime: metav1.NewTime(noon.Add(8 * time.Hour)), LastTransitionTime: metav1.NewTime(noon.Add(7 * time.Hour))}, noon)
		p.Meet(running("b", noon.Add(started)), noon.Add(time.Minute))
		if p.State != want {
			t.Errorf("the container started %s after noon: a minute after noon the result is %s %q, want %s", started, p.State, p.Message, want)
		}
	}
}
