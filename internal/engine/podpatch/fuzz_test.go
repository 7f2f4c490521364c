package podpatch

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/afloat-project/afloat/internal/fuzzing"
)

// FuzzPatch: a patch is JSON that applies to the pod, does what it was asked for, keeps all that was not
// named, and changes nothing when it is applied to its own result.
func FuzzPatch(f *testing.F) {
	f.Add([]byte("a pod with some fields"), "app.kubernetes.io/name", "web", "registry.example.com/app:2", true)
	f.Add([]byte{}, "", "", "", false)
	f.Add([]byte("other"), "$patch", "delete", "$setElementOrder", true)
	f.Fuzz(func(t *testing.T, data []byte, key, value, image string, remove bool) {
		pod := fuzzing.Fill[corev1.Pod](data)
		named := map[string]bool{}
		pod.Spec.Containers = slices.DeleteFunc(pod.Spec.Containers, func(c corev1.Container) bool {
			again := named[c.Name]
			named[c.Name] = true
			return again || c.Name == ""
		})
		pod.OwnerReferences, pod.Spec.InitContainers, pod.Spec.EphemeralContainers = nil, nil, nil
		patch := &Patch{}
		patch.Label(key, value)
		if remove {
			patch.RemoveAnnotation(key)
		} else {
			patch.Annotation(key, value)
		}
		for i := range pod.Spec.Containers {
			patch.Image(pod.Spec.Containers[i].Name, image)
		}
		text, err := patch.JSON(pod)
		if err != nil {
			t.Fatalf("the patch cannot be written: %v", err)
		}
		if key == "$patch" || key == "$retainKeys" ||
			!json.Valid([]byte(fuzzing.JSON(map[string]string{key: value}))) {
			return // no key of a label
		}
		before := []byte(fuzzing.JSON(pod))
		after, err := strategicpatch.StrategicMergePatch(before, text, corev1.Pod{})
		if err != nil {
			t.Fatalf("%s does not apply to %s: %v", text, before, err)
		}
		again, err := strategicpatch.StrategicMergePatch(after, text, corev1.Pod{})
		if err != nil || fuzzing.JSON(fuzzing.Value(string(again))) != fuzzing.JSON(fuzzing.Value(string(after))) {
			t.Errorf("%s applied twice gives %s after %s, %v", text, again, after, err)
		}
		changed := &corev1.Pod{}
		if err := json.Unmarshal(after, changed); err != nil {
			t.Fatalf("the pod cannot be read any more: %v", err)
		}
		for i := range changed.Spec.Containers {
			if got := changed.Spec.Containers[i].Image; got != string([]rune(image)) {
				t.Errorf("container %d has image %q, want %q", i, got, image)
			}
		}
		if len(changed.Spec.Containers) != len(pod.Spec.Containers) || changed.Spec.NodeName != pod.Spec.NodeName {
			t.Errorf("%s changed more than it was asked for: %s became %s", text, before, after)
		}
	})
}
