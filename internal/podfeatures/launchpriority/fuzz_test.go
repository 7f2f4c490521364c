package launchpriority

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzHeld: containers with barriers are in the order of their priorities, each is one of the pod, and a
// pod without them concerns nobody.
func FuzzHeld(f *testing.F) {
	f.Add([]byte("a pod with containers"), "p_5", "web")
	f.Add([]byte{}, "p_-1", "")
	f.Fuzz(func(t *testing.T, data []byte, key, name string) {
		pod := fuzzing.Fill[corev1.Pod](data)
		pod.Name = name
		for i := range pod.Spec.Containers {
			if i > 0 {
				key = pub.LaunchBarrierKey(i)
			}
			pod.Spec.Containers[i].Env = append(pod.Spec.Containers[i].Env,
				corev1.EnvVar{Name: pub.ContainerBarrierEnv,
					ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: pub.LaunchBarrierName(name)}, Key: key}}})
		}
		all := heldBy(pod)
		for i := 1; i < len(all); i++ {
			if all[i-1].priority < all[i].priority {
				t.Errorf("priority %d is before %d", all[i-1].priority, all[i].priority)
			}
		}
		if len(all) > len(pod.Spec.Containers) || len(remaining(pod, all)) > len(all) || Concerns(pod) &&
			!Held(pod) {
			t.Errorf("%d containers are held of %d", len(all), len(pod.Spec.Containers))
		}
	})
}
