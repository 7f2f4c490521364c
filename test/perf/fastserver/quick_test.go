package fastserver

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The quick way gives the same result as the library, and leaves all other patches to the library.
func TestQuickPatchesGiveTheSameAsTheLibrary(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	pod := podOf("a")
	pod.UID, pod.ResourceVersion, pod.Annotations = "u", "5", map[string]string{"x": "1", "y": "2"}
	pod.Status.Conditions = []corev1.PodCondition{{Type: "A", Status: "False", Reason: "R", Message: "M", LastTransitionTime: at},
		{Type: "B", Status: "True", LastTransitionTime: at}}
	k := &kind{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), name: "Pod", typed: true}
	pod.SetGroupVersionKind(k.gvk())
	for patch, quick := range map[string]bool{
		`{"metadata":{"uid":"v","resourceVersion":"4"}}`:                                                                        true,
		`{"metadata":{"labels":{"app":null,"new":"1"},"annotations":{"x":null,"y":"3","z":""}}}`:                                true,
		`{"spec":{"containers":[{"name":"side","image":"nginx:2"}]}}`:                                                           true,
		`{"spec":{"containers":[{"name":"new","image":"nginx:2"}]}}`:                                                            false,
		`{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}`:                                                           false,
		`{"spec":{"nodeName":"n"}}`:                                                                                             false,
		`{"metadata":{"finalizers":["a.dev/b"]}}`:                                                                               false,
		`{"status":{"conditions":[{"type":"A","status":"True"}]}}`:                                                              true,
		`{"status":{"conditions":[{"type":"B","status":"False","reason":"Why","message":"text"}]}}`:                             true,
		`{"status":{"conditions":[{"type":"A","status":"True","reason":null,"lastTransitionTime":"2026-02-03T04:05:06Z"}]}}`:    true,
		`{"status":{"conditions":[{"type":"C","status":"True","lastTransitionTime":"2026-02-03T04:05:06Z","message":null}]}}`:   true,
		`{"status":{"conditions":[{"type":"C","status":"True"},{"type":"B","status":"False"},{"type":"D","status":"True"}]}}`:   true,
		`{"status":{"$setElementOrder/conditions":[{"type":"B"},{"type":"A"}],"conditions":[{"type":"A","status":"Unknown"}]}}`: false,
	} {
		before := &version{object: pod.DeepCopy()}
		got := quickly(before.object.(*corev1.Pod), []byte(patch))
		if got != nil != quick {
			t.Errorf("%s: quick %v", patch, got != nil)
		}
		if diff := cmp.Diff(pod, before.object); diff != "" {
			t.Errorf("%s changed the version: %s", patch, diff)
		}
		want, err := k.patchedDocument(before, types.StrategicMergePatchType, []byte(patch))
		if err != nil {
			t.Fatalf("patching by %s: %v", patch, err)
		}
		byType := cmpopts.SortSlices(func(a, b corev1.PodCondition) bool { return a.Type < b.Type })
		if got != nil {
			if diff := cmp.Diff(want, object(got), byType); diff != "" {
				t.Errorf("patched by %s (-want +got):\n%s", patch, diff)
			}
		}
	}
}
