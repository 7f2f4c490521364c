package controller

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/cloneset"
)

// allocated is how many bytes a plan takes from memory, in all.
func allocated(s cloneset.Snapshot) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cloneset.Make(s)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// IPU-326 (part), IPU-123 (part): what stands in an annotation of a pod is read once in a plan, not for each
// of its containers: with 500 of them they took a worker, of all CloneSets, a second for each pod in each
// pass.
func TestLongAnnotationsAreReadOnceForAllContainers(t *testing.T) {
	const containers, long = 500, 200 << 10
	names := make([]string, containers)
	for i := range names {
		names[i] = fmt.Sprint("c", i)
	}
	encoded := func(of map[string]any) string {
		of["unknown"] = []string{strings.Repeat("x", long)}
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, change := range map[string]func(s *cloneset.Snapshot, pod *corev1.Pod){
		"its record, where others wrote images": func(_ *cloneset.Snapshot, pod *corev1.Pod) {
			pod.Annotations[pub.InPlaceUpdateState] = encoded(map[string]any{"revision": pod.Labels[pub.ControllerRevisionHash],
				"lastContainerStatuses": nil})
		},
		"the report of the daemon": func(_ *cloneset.Snapshot, pod *corev1.Pod) {
			before := map[string]any{}
			for _, name := range names {
				before[name] = map[string]any{"imageID": "old"}
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, ContainerID: "id",
					ImageID: "new", Image: "other:1"})
			}
			pod.Labels[pub.LifecycleState] = string(pub.LifecycleStateUpdating)
			pod.Annotations[pub.InPlaceUpdateState] = encoded(map[string]any{"revision": pod.Labels[pub.ControllerRevisionHash],
				"lastContainerStatuses": before})
			pod.Annotations[pub.RuntimeContainersMeta] = encoded(map[string]any{"containers": nil})
		},
	} {
		snapshot := many(t, 1, false)
		stored := snapshot.Revisions[0].DeepCopy()
		var listed []string
		for _, name := range names {
			listed = append(listed, fmt.Sprintf(`{"name":%q,"image":"app:1"}`, name))
			snapshot.Pods[0].Spec.Containers = append(snapshot.Pods[0].Spec.Containers, corev1.Container{Name: name, Image: "other:1"})
		}
		stored.Name, stored.Data.Raw = "web-many", fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[%s]}}}}`,
			strings.Join(listed, ","))
		stored.Revision--
		snapshot.Pods[0].Labels[pub.ControllerRevisionHash] = stored.Name
		snapshot.Revisions = append(snapshot.Revisions, stored)
		change(&snapshot, snapshot.Pods[0])
		if got := allocated(snapshot); got > 50*long {
			t.Errorf("%s: %d KiB are allocated", name, got>>10)
		}
	}
}
