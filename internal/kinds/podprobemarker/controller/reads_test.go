package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// A tenant has 128 probes of one pod, which have succeeded at different times, and edits them so that none of them has
// a result yet. Whether the container was replaced since is asked of the API server once for the pod, and not for each
// probe in each pass: the probes of all tenants of the node wait for the pass.
func TestProbesWithoutAResultDoNotReadTheirPodAgainAndAgain(t *testing.T) {
	w := town(t)
	w.Change(podKey("shop", "a"), func(o client.Object) {
		o.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Ready: true, ContainerID: "containerd://1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(given.Noon.Add(-time.Hour))}}}}
	})
	for i := range 4 {
		var probes []appsv1alpha1.PodContainerProbe
		for j := range podprobemarker.MostProbes {
			probes = append(probes, given.Probe(fmt.Sprintf("p%d-%d", i, j), func(p *appsv1alpha1.PodContainerProbe) { p.MarkerPolicy = nil }))
		}
		w.put(given.Marker(fmt.Sprint("m", i), probes...))
	}
	w.quiet()
	n := 0
	w.probing("n", func(_ *appsv1alpha1.PodProbe, probe *appsv1alpha1.ContainerProbe) appsv1alpha1.ContainerProbeState {
		state := given.Result(probe.Name, appsv1alpha1.ProbeSucceeded, "")
		n++
		state.LastProbeTime = metav1.NewTime(given.Noon.Add(time.Duration(n) * time.Second))
		return state
	})
	w.quiet()
	w.probing("n", func(_ *appsv1alpha1.PodProbe, probe *appsv1alpha1.ContainerProbe) appsv1alpha1.ContainerProbeState {
		return given.Result(probe.Name, appsv1alpha1.ProbeUnknown, "")
	})
	w.quiet()
	const passes = 10
	w.live = 0
	for i := range passes {
		w.Change(listKey("n"), func(o client.Object) { o.SetLabels(map[string]string{"pass": fmt.Sprint(i)}) }) // somebody's probe has a result
		w.quiet()
	}
	if w.live > passes {
		t.Errorf("%d passes over a node with one such pod: %d reads of the pod from the API server, want %d at most", passes, w.live, passes)
	}
}
