package inplace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// TestQualityOfService agrees with the API server's rule (IPU-037).
func TestQualityOfService(t *testing.T) {
	both := func(limit, request string) corev1.ResourceRequirements {
		r := corev1.ResourceRequirements{}
		if limit != "" {
			r.Limits = quantities("cpu", limit, "memory", limit)
		}
		if request != "" {
			r.Requests = quantities("cpu", request, "memory", request)
		}
		return r
	}
	tests := map[string]struct {
		pod, first, second corev1.ResourceRequirements
		want               corev1.PodQOSClass
	}{
		"nothing":               {want: corev1.PodQOSBestEffort},
		"limits alone":          {first: both("1", ""), second: both("2", ""), want: corev1.PodQOSGuaranteed},
		"limits are requests":   {first: both("1", "1"), second: both("2", "2"), want: corev1.PodQOSGuaranteed},
		"requests alone":        {first: both("", "1"), second: both("", "1"), want: corev1.PodQOSBurstable},
		"requests below limits": {first: both("2", "1"), second: both("1", "1"), want: corev1.PodQOSBurstable},
		"one container without": {first: both("1", "1"), want: corev1.PodQOSBurstable},
		"other resources do not count": {first: corev1.ResourceRequirements{Limits: quantities("ephemeral-storage", "1Gi")},
			want: corev1.PodQOSBestEffort},
		"the pod's own come first": {pod: both("1", "1"), first: both("", "1"), want: corev1.PodQOSGuaranteed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Resources: tt.first}},
				InitContainers: []corev1.Container{{Resources: tt.second}}}
			if len(tt.pod.Limits) > 0 {
				spec.Resources = &tt.pod
			}
			if got := QualityOfService(spec); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestResize: only the quantities of the first batch that differ are sent, and none while a grace period runs
// (IPU-080, IPU-112, IPU-114).
func TestResize(t *testing.T) {
	want := map[string]corev1.ResourceRequirements{"nginx": {Limits: quantities("cpu", "2", "memory", "1Gi")}}
	u := to("web-2", &Change{Parts: Parts{Resources: want}}, 30)
	pod := webPod(func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = quantities("cpu", "1", "memory", "1024Mi")
	})
	patch, err := u.Resize(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	body, err := patch.JSON(pod)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		`{"metadata":{"resourceVersion":"5","uid":"u"},"spec":{"containers":[{"name":"nginx","resources":{"limits":{"cpu":"2"}}}]}}`,
		string(body)); diff != "" {
		t.Errorf("the patch (-want +got):\n%s", diff)
	}
	if subresource := patch.Subresource(); subresource != "resize" {
		t.Errorf("subresource of the patch: got %q, want \"resize\"", subresource)
	}
	if again, err := u.Resize(applied(t, pod, patch), noon); err != nil {
		t.Errorf("a second resize: %v", err)
	} else if !again.Empty() {
		t.Errorf("sent again: %s", again)
	}
	graceful := to("web-2", &Change{Parts: Parts{Resources: want, Images: map[string]string{"nginx": "nginx:2"}}, Stops: []string{"nginx"}},
		30)
	if early, err := graceful.Resize(pod, noon); err != nil {
		t.Errorf("a resize in the grace period: %v", err)
	} else if !early.Empty() {
		t.Errorf("sent in the grace period: %s", early)
	}
	start, err := graceful.Start(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	later, err := ContinueResize(applied(t, pod, start), noon)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("resources of nginx", later.String()); diff != "" { // IPU-068
		t.Errorf("the resize after the grace period, in words (-want +got):\n%s", diff)
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
			t.Errorf("QoS class with resources of the pod, %s: got %s, want %s", name, got, tt.want)
		}
	}
}

// IPU-103 (part): the next quantities are written when the grace period is over, or if there is none. Those
// of a grace period that began at another revision are not written.
func TestTheNextQuantities(t *testing.T) {
	const next = `{"nginx":{"limits":{"cpu":"2"}}}`
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"no update": {webPod(), ""},
		"a later batch": {
			webPod(annotated(pub.InPlaceUpdateState, `{"revision":"web-1","updateTimestamp":"`+noonText+
				`","lastContainerStatuses":{},"nextContainerResources":`+next+`}`)), "resources of nginx"},
		"a grace period": {webPod(annotated(pub.InPlaceUpdateGrace, `{"revision":"web-1","graceSeconds":1,"containerResources":`+next+`}`)),
			"resources of nginx"},
		"another's": {webPod(annotated(pub.InPlaceUpdateGrace, `{"revision":"web-2","graceSeconds":1,"containerResources":`+next+`}`)),
			""},
	} {
		patch, err := ContinueResize(tt.pod, noon)
		if err != nil {
			t.Fatal(err)
		}
		if patch.String() != tt.want {
			t.Errorf("%s: the patch is %q in words, want %q", name, patch, tt.want)
		}
	}
}
