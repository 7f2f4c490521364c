package inplace

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// IPU-300 (part): if kubelet reports no generation, another image under a name that cannot be compared
// completes the update. If kubelet reports an older generation, it does not.
func TestKubeletsThatReportNoGeneration(t *testing.T) {
	before := ContainerRecord{Image: "nginx:0", ImageID: "sha-0", ContainerID: "c-0"}
	for observed, done := range map[int64]bool{0: true, 1: false, 2: true} {
		pod := webPod(func(pod *corev1.Pod) {
			pod.Generation, pod.Status.ObservedGeneration = 2, observed
			pod.Status.ContainerStatuses[1].Image = "mirror/web:x"
		})
		if got := Replaced(pod, "nginx", before, noon); (got == "") != done {
			t.Errorf("generation %d: %q", observed, got)
		}
	}
}

// IPU-037 (part): resources of the pod itself count if there are any.
func TestQualityOfAPodWithResourcesOfItsOwn(t *testing.T) {
	both := corev1.ResourceRequirements{Limits: quantities("cpu", "1", "memory", "1Gi"), Requests: quantities("cpu", "1", "memory", "1Gi")}
	some := corev1.ResourceRequirements{Requests: quantities("cpu", "1")}
	for name, tt := range map[string]struct {
		pod  *corev1.ResourceRequirements
		want corev1.PodQOSClass
	}{
		"none":     {nil, corev1.PodQOSGuaranteed},
		"empty":    {&corev1.ResourceRequirements{}, corev1.PodQOSGuaranteed},
		"requests": {&some, corev1.PodQOSBurstable},
		"both":     {&both, corev1.PodQOSGuaranteed},
	} {
		if got := QualityOfService(&corev1.PodSpec{Resources: tt.pod, Containers: []corev1.Container{{Resources: both}}}); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The record names the kinds of change that a grace period has held back, and no others.
func TestKindsOfChangeAfterAGracePeriod(t *testing.T) {
	for held, want := range map[string][3]bool{
		`"containerImages":{"nginx":"nginx:2"}`:                      {true, false, false},
		`"containerResources":{"nginx":{"limits":{"cpu":"2"}}}`:      {false, true, false},
		`"containerRefMetadata":{"nginx":{"annotations":{"a":"b"}}}`: {false, false, true},
	} {
		pod := webPod(annotated(pub.InPlaceUpdateGrace, `{"revision":"web-1","graceSeconds":1,`+held+`}`))
		patch, err := Continue(pod, noon)
		if err != nil {
			t.Fatal(err)
		}
		state, err := StateOf(applied(t, pod, patch))
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]bool{state.UpdateImages, state.UpdateResources, state.UpdateEnvFromMetadata}; got != want {
			t.Errorf("%s: %v", held, got)
		}
	}
}
