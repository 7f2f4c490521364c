package probe

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// PPM-081, PPM-082: the daemon of a node is replaced. Meanwhile the PodProbeMarker's probe asks something else, or of
// another container. The result in the status is that of the question before, about the container before: it is not
// reported as that of the new one, as it would not be if the daemon had been there (TestADefinitionThatChanges). Any other
// result stays until the probe has another one, also if an earlier release, which recorded no target, wrote it.
func TestAProbeThatChangedWhileTheDaemonWasAway(t *testing.T) {
	later := noon.Add(time.Minute)
	for name, test := range map[string]struct {
		change func(*appsv1alpha1.NodePodProbe, *appsv1alpha1.ContainerProbe)
		want   appsv1alpha1.ProbeState
	}{
		"another command": {func(_ *appsv1alpha1.NodePodProbe, p *appsv1alpha1.ContainerProbe) {
			p.Probe.Exec = &corev1.ExecAction{Command: []string{"/other"}}
		}, appsv1alpha1.ProbeUnknown},
		"another container": {func(_ *appsv1alpha1.NodePodProbe, p *appsv1alpha1.ContainerProbe) { p.ContainerName = "sidecar" },
			appsv1alpha1.ProbeUnknown},
		"another threshold": {func(_ *appsv1alpha1.NodePodProbe, p *appsv1alpha1.ContainerProbe) { p.Probe.FailureThreshold = 5 },
			appsv1alpha1.ProbeSucceeded},
		"a result of an earlier release": {func(o *appsv1alpha1.NodePodProbe, _ *appsv1alpha1.ContainerProbe) {
			o.Status.PodProbeStatuses[0].ProbeStates[0].Target = ""
		}, appsv1alpha1.ProbeSucceeded},
	} {
		npp := object(spec(thresholds(1, 3)))
		daemon := func(now time.Time) (*reconciler, *Prober) {
			r := newReconciler("n", nil, nil, clocktesting.NewFakeClock(now))
			r.containers = newContainers(nil, nil, true, func() time.Time { return now })
			r.define(npp)
			return r, r.probers[Key{"pod", "role#primary"}]
		}
		first, p := daemon(noon)
		p.Meet(running("b", noon.Add(-time.Hour)), noon)
		p.Take(Attempt{Success, "yes"}, "b", noon)
		npp.Status, _, _ = Status(npp, first.probers, noon)

		// The daemon ends, the manager writes the list, another daemon starts.
		test.change(npp, &npp.Spec.PodProbes[0].Probes[0])
		npp.Generation++
		_, p = daemon(later)
		p.Meet(running("b", noon.Add(-time.Hour)), later)
		p.Take(Attempt{None, "no such command"}, "b", later)
		p.Take(Attempt{Failure, "no"}, "b", later.Add(time.Second))
		if p.State != test.want {
			t.Errorf("%s: after one attempt of three the result is %s %q, want %s", name, p.State, p.Message, test.want)
		}
	}
}
