package probe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// PPM-081, PPM-082: the daemon of a node is replaced. Meanwhile the PodProbeMarker's probe asks something else, or of
// another container. The result in the status is that of the question before, about the container before: it is not
// reported as that of the new one, as it would not be if the daemon had been there (TestADefinitionThatChanges).
func TestAProbeThatChangedWhileTheDaemonWasAway(t *testing.T) {
	yes := appsv1alpha1.ContainerProbeState{Name: "role#primary", State: "Succeeded", Message: "yes",
		LastProbeTime: metav1.NewTime(noon), LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour))}
	for name, change := range map[string]func(*appsv1alpha1.ContainerProbe){
		"another command":   func(p *appsv1alpha1.ContainerProbe) { p.Probe.Exec = &corev1.ExecAction{Command: []string{"/other"}} },
		"another container": func(p *appsv1alpha1.ContainerProbe) { p.ContainerName = "sidecar" },
	} {
		npp := object(spec(thresholds(1, 3)))
		first := newReconciler("n", nil, nil, clocktesting.NewFakeClock(noon))
		first.containers = newContainers(nil, nil, true, func() time.Time { return noon })
		first.define(npp)
		npp.Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{{Namespace: "db", Name: "pg-0", UID: "pod",
			ProbeStates: []appsv1alpha1.ContainerProbeState{yes}}}

		// The daemon ends, the manager writes the list, another daemon starts.
		change(&npp.Spec.PodProbes[0].Probes[0])
		npp.Generation++
		next := newReconciler("n", nil, nil, clocktesting.NewFakeClock(noon.Add(time.Minute)))
		next.containers = newContainers(nil, nil, true, func() time.Time { return noon })
		next.define(npp)
		p := next.probers[Key{"pod", "role#primary"}]
		p.Meet(running("b", noon.Add(-time.Hour)), noon.Add(time.Minute))
		p.Take(Attempt{None, "no such command"}, "b", noon.Add(time.Minute))
		p.Take(Attempt{Failure, "no"}, "b", noon.Add(time.Minute+time.Second))
		if p.State == "Succeeded" {
			t.Errorf("%s: nothing has succeeded, and one attempt failed: the result is %s %q, want none yet", name, p.State, p.Message)
		}
	}
}
