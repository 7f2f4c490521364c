package inplace

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
	"github.com/afloat-project/afloat/internal/fuzzing"
)

var stateNames = []string{"revision", "updateTimestamp", "lastContainerStatuses", "imageID",
	"nextContainerImages", "nextContainerRefMetadata",
	"nextContainerResources", "preCheckBeforeNext", "containersRequiredReady", "containerBatchesRecord",
	"nextContainerRestarts", "envContainers",
	"resizedContainers", "mended", "containerImages", "metaDataPatch", "graceSeconds", "app", "side"}

// FuzzState: whatever is in the annotations of a pod, its progress is an answer or an error that names the
// annotation, and a patch that continues the update is JSON that applies to the pod.
func FuzzState(f *testing.F) {
	for _, text := range []string{
		`{"revision":"web-2","updateTimestamp":"2026-01-02T03:04:05Z","lastContainerStatuses":{"app":{"imageID":"a@sha256:1"}},"nextContainerImages":{"side":"s:2"},"preCheckBeforeNext":{"containersRequiredReady":["app"]}}`,
		`{"revision":"web-2","updateTimestamp":null,"nextContainerResources":{"app":{"limits":{"cpu":"1"}}},"nextContainerRestarts":["side","nobody"]}`,
		`{"revision":"web-2","containerImages":{"app":"i:3"},"graceSeconds":-5,"metaDataPatch":"e30="}`, `null`, `[]`, `{}`} {
		f.Add(text, text, []byte{})
		f.Add(text, "{}", []byte("\x01\x02\x03\x04\x05\x06"))
	}
	f.Fuzz(func(t *testing.T, state, grace string, changes []byte) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", UID: "u", ResourceVersion: "1",
			Annotations: map[string]string{
				pub.InPlaceUpdateState: fuzzing.Edit(state, changes, stateNames...),
				pub.InPlaceUpdateGrace: fuzzing.Edit(grace, changes, stateNames...)}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "i:2"}, {Name: "side",
				Image: "s:1"}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Image: "i:2",
				ImageID: "a@sha256:2", Ready: true},
				{Name: "side", Image: "s:1", Ready: true}}}}
		before := pod.DeepCopy()
		now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
		_, err := StateOf(pod)
		if _, err2 := Progress(pod, now); err != nil && err2 == nil {
			t.Errorf("the state of %q cannot be read: %v; and its progress can be told", pod.Annotations, err)
		}
		for _, next := range []func(*corev1.Pod, time.Time) (*podpatch.Patch, error){Continue, ContinueResize} {
			patch, err := next(pod, now)
			if err != nil || patch.Empty() {
				continue
			}
			text, err := patch.JSON(pod)
			if err != nil || !json.Valid(text) {
				t.Errorf("the patch of %q is %s, %v", pod.Annotations, text, err)
			}
		}
		if fuzzing.JSON(before) != fuzzing.JSON(pod) {
			t.Errorf("the pod was changed by looking at it: %s", fuzzing.JSON(pod))
		}
	})
}

// FuzzCompare: a template is no change of itself, a change and its way back touch the same containers, and
// every difference that is neither made in place nor metadata is blocked with its path.
func FuzzCompare(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"labels":{"app":"web"},"annotations":{"a":"b"}},"spec":{"containers":[{"name":"app","image":"i:1","env":[{"name":"e","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['app']"}}}],"resources":{"limits":{"cpu":"1"}}},{"name":"side","image":"s"}]}}`,
		`{"spec":{"initContainers":[{"name":"app","image":"i","restartPolicy":"Always"}],"containers":[]}}`, `{}`, `null`} {
		f.Add(text, []byte("\x01\x00\x01\x02\x01"))
		f.Add(text, []byte("other images and resources"))
	}
	f.Fuzz(func(t *testing.T, text string, changes []byte) {
		other := fuzzing.Edit(text, changes, "image", "resources", "limits", "cpu", "memory", "labels",
			"annotations", pub.RestartedAt, "env", "name")
		for _, options := range []Options{{}, {EnvFromMetadata: true, Resize: true}} {
			change, blockers, err := Compare([]byte(text), []byte(text), options)
			if err != nil {
				return
			}
			if len(blockers) > 0 || !change.Quiet() {
				t.Errorf("%s is changed by itself: %s, %v", text, change, blockers)
			}
			change, blockers, err = Compare([]byte(text), []byte(other), options)
			if err != nil {
				continue
			}
			for _, blocker := range blockers {
				if blocker.Path == "" || blocker.Rule == "" {
					t.Errorf("from %s to %s is blocked by %+v", text, other, blocker)
				}
			}
			back, blockersBack, err := Compare([]byte(other), []byte(text), options)
			if err != nil {
				continue
			}
			if len(blockers) == 0 && len(blockersBack) == 0 && len(change.Images) != len(back.Images) {
				t.Errorf("from %s to %s has images %v, and back %v", text, other, change.Images, back.Images)
			}
		}
	})
}
