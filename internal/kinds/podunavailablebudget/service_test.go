package podunavailablebudget_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	build "github.com/afloat-project/afloat/internal/kinds/podunavailablebudget/podunavailablebudgettest"
)

// begun is an update in place that began five minutes ago and recorded that the container ran id:0.
const begun = `{"revision":"web-2","updateTimestamp":"2026-01-01T11:55:00Z","updateImages":true,` +
	`"lastContainerStatuses":{"nginx":{"imageID":"id:0","containerID":"c://0","image":"nginx:0"}}`

func ran(id string) string {
	return strings.NewReplacer("id:0", "id:"+id, "c://0", "c://"+id).Replace(begun)
}

func runs(image, reported, id string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image = image
		pod.Status.ContainerStatuses[0].Image, pod.Status.ContainerStatuses[0].ImageID = reported, id
	}
}

// TestWhichPodsAreInService shows which pods count as in service, and which may be disrupted whatever the
// budget says (PUB-055, PUB-056, PUB-057; PUB-086 (part)).
func TestWhichPodsAreInService(t *testing.T) {
	const digest = "repo/nginx@sha256:0123456789012345678901234567890123456789012345678901234567890123"
	sidecar := func(image string) string {
		return `{"mesh":{"revision":"h2","updateTimestamp":"2026-01-01T11:55:00Z","lastContainerStatuses":{"nginx":{"imageID":"id:1",` +
			`"containerID":"c://1","image":"` + image + `"}}}}`
	}
	type verdict struct {
		Why         string
		Doubt, Free bool
	}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want verdict
	}{
		"in service": {build.Pod("p"), verdict{}},
		"being deleted": {build.Pod("p", build.Terminating),
			verdict{Why: "being deleted", Free: true}},
		"pending": {build.Pod("p", build.Phase(corev1.PodPending)), verdict{Why: "phase Pending", Free: true}},
		"ended":   {build.Pod("p", build.Phase(corev1.PodFailed)), verdict{Why: "phase Failed", Free: true}},
		"of a node that is lost": {build.Pod("p", build.Phase(corev1.PodUnknown)),
			verdict{Why: "phase Unknown", Free: true}},
		"not ready": {build.Pod("p", build.NotReady), verdict{Why: "not ready", Free: true}},
		"without condition Ready": {build.Pod("p", func(pod *corev1.Pod) { pod.Status.Conditions = nil }),
			verdict{Why: "not ready", Free: true}},
		"labelled as unavailable, with whatever value": {build.Pod("p", build.Labelled(pub.UnavailablePodPrefix+"b", ""),
			build.Labelled(pub.UnavailablePodPrefix+"a", "false")),
			verdict{Why: "label unavailable-pod.kruise.io/a", Free: true}},
		"a label that only looks like that": {build.Pod("p", build.Labelled("unavailable-pod.kruise.iox/a", "")), verdict{}},
		"a container does not run its image yet": {build.Pod("p", build.Noted(pub.InPlaceUpdateState, ran("1")+"}")),
			verdict{Why: "being updated in place", Free: true}},
		"it runs it": {build.Pod("p", build.Noted(pub.InPlaceUpdateState, begun+"}")), verdict{}},
		"another batch follows": {build.Pod("p", build.Noted(pub.InPlaceUpdateState,
			begun+`,"nextContainerImages":{"nginx":"nginx:2"}}`)), verdict{Why: "being updated in place", Free: true}},
		"in a grace period": {build.Pod("p", build.Noted(pub.InPlaceUpdateState, begun+"}"), build.Noted(
			pub.InPlaceUpdateGrace, `{"revision":"web-2","containerImages":{"nginx":"nginx:2"},"graceSeconds":3600}`)),
			verdict{Why: "being updated in place", Free: true}},
		"resources do not run yet": {build.Pod("p", func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: cpu("2")}
			pod.Status.ContainerStatuses[0].Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: cpu("1")}}
		}, build.Noted(pub.InPlaceUpdateState, `{"revision":"web-2","updateTimestamp":"2026-01-01T11:55:00Z",`+
			`"updateResources":true,"resizedContainers":{"nginx":{"requests":{"cpu":"2"}}}}`)),
			verdict{Why: "being updated in place", Free: true}},
		"a record that cannot be read frees nothing (PUB-D1)": {build.Pod("p", build.Noted(pub.InPlaceUpdateState, "{")),
			verdict{Doubt: true}},
		"a grace that cannot be read": {build.Pod("p", build.Noted(pub.InPlaceUpdateGrace, "{")), verdict{Doubt: true}},
		"a sidecar does not run its image yet": {build.Pod("p", build.Noted(pub.SidecarSetInPlaceUpdateState, sidecar("nginx:0"))),
			verdict{Why: "a sidecar is being upgraded: container nginx does not run nginx:1 yet", Free: true}},
		"records of sidecars that cannot be read": {build.Pod("p", build.Noted(pub.SidecarSetInPlaceUpdateState, "{")),
			verdict{Doubt: true}},
		"by digest, reported otherwise, no update recorded (PUB-D1)": {build.Pod("p", runs(digest, "sha256:ffff", "sha256:ffff")), verdict{}},
		"by digest, reported otherwise, after an update": {build.Pod("p", runs(digest, "sha256:ffff", "sha256:ffff"),
			build.Noted(pub.InPlaceUpdateState, begun+"}")), verdict{}},
		"by digest, and the former image runs": {build.Pod("p", runs(digest, "sha256:ffff", "sha256:ffff"),
			build.Noted(pub.InPlaceUpdateState, strings.NewReplacer("id:0", "sha256:ffff", "c://0", "c://1").Replace(begun)+"}")),
			verdict{Why: "being updated in place", Free: true}},
		"not protected":                 {build.Pod("p", build.Noted(pub.NoProtect, "true")), verdict{Free: true}},
		"not protected, in other words": {build.Pod("p", build.Noted(pub.NoProtect, "T")), verdict{Free: true}},
		"protected all the same":        {build.Pod("p", build.Noted(pub.NoProtect, "false")), verdict{}},
		"no truth value":                {build.Pod("p", build.Noted(pub.NoProtect, "yes")), verdict{}},
	} {
		t.Run(name, func(t *testing.T) {
			before := tt.pod.DeepCopy()
			got := verdict{}
			got.Why, got.Doubt = podunavailablebudget.Why(tt.pod, build.Now)
			if got.Doubt && got.Why != "" {
				got.Why = "" // the words are those of the reader of the record
			}
			_, got.Free = podunavailablebudget.Free(tt.pod, build.Now)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tt.pod); diff != "" {
				t.Error("the pod is changed:", diff)
			}
		})
	}
}

// TestOnlyActivePodsBelongToABudget shows which pods belong to a budget's set at all (PUB-035 (part)).
func TestOnlyActivePodsBelongToABudget(t *testing.T) {
	for name, tt := range map[string]struct {
		option func(*corev1.Pod)
		want   bool
	}{
		"running":     {build.Phase(corev1.PodRunning), true},
		"pending":     {build.Phase(corev1.PodPending), true},
		"not ready":   {build.NotReady, true},
		"succeeded":   {build.Phase(corev1.PodSucceeded), false},
		"failed":      {build.Phase(corev1.PodFailed), false},
		"terminating": {build.Terminating, false},
	} {
		if got := readiness.Active(build.Pod("p", tt.option)); got != tt.want {
			t.Errorf(`%s: the pod is active: got %t, want %t`, name, got, tt.want)
		}
	}
}
