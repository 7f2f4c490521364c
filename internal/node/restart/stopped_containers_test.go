package restart

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CRR-131 (part), CRR-167 (part): a request for a container that kubelet does not start again has succeeded,
// no matter which rule keeps it stopped.
func TestARequestForAContainerThatStaysStoppedEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		why    string
	}{
		"it is started again": {func(*corev1.Pod) {}, ""},
		"never": {func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever },
			"its restart policy does not start it again"},
		"the pod has ended": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "the pod has ended (Succeeded)"},
	} {
		t.Run(name, func(t *testing.T) {
			w, now := quiet(t)
			pod := &corev1.Pod{}
			if err := w.api.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "p"}, pod); err != nil {
				t.Fatal(err)
			}
			tt.change(pod)
			if err := w.api.Update(t.Context(), pod.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			phase := pod.Status.Phase
			if err := w.api.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "p"}, pod); err != nil {
				t.Fatal(err)
			}
			pod.Status.Phase = phase
			if err := w.api.Status().Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			w.containers[0].Running, w.containers[0].Exited = false, true
			w.exits[w.containers[0].ID] = 0
			if err := w.rounds(4); err != nil {
				t.Fatal(err)
			}
			state := now().Status.ContainerRecreateStates[0]
			if ended, want := state.Phase == succeeded, tt.why != ""; ended != want {
				t.Errorf("the container has succeeded: got %t, want %t: %+v", ended, want, state)
			}
			if !strings.Contains(state.Message, tt.why) {
				t.Errorf("message of the container: got %q, want %q in it", state.Message, tt.why)
			}
		})
	}
}
