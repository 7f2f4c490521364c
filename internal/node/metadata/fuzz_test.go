package metadata

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/fuzzing"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// FuzzPlan: whatever the annotations of a pod say and its runtime answers, the report is about containers
// that the runtime has, one for each status at most, and is written once; what is to be read and stopped are
// containers that run; and what kubelet recorded of hooks and ports is read, or there are none.
func FuzzPlan(f *testing.F) {
	state := inplace.State{Revision: "web-2", RestartContainers: map[string]string{"side": "containerd://side-1"},
		EnvContainers: map[string]string{"app": "containerd://app-1"}}
	seed := fuzzing.JSON(map[string]any{"Pod": pod("w", updatingPod, func(p *corev1.Pod) { p.Annotations[pub.InPlaceUpdateState] = fuzzing.JSON(state) },
		report(inplace.RuntimeContainer{Name: "app", ContainerID: "containerd://app-1"})),
		"Containers":   []runtime.Container{container("app", 1, "app:1"), container("side", 1, "side:1"), container("proxy", 2, "proxy:1")},
		"Environments": map[string]any{"containerd://app-1": map[string]any{"V": "v"}}, "Unreadable": map[string]any{"containerd://side-1": true},
		"EnvFromMetadata": true})
	hooks := fuzzing.JSON(map[string]any{runtime.AnnotationPreStop: `{"exec":{"command":["a"]}}`, runtime.AnnotationPorts: `[{"name":"p","containerPort":80}]`})
	f.Add(seed, hooks, []byte{})
	f.Add(seed, hooks, []byte("\x01\x02\x00\x01\x03\x02"))
	f.Add(seed, `{}`, []byte("the statuses and the runtime differ"))
	f.Fuzz(func(t *testing.T, text, annotations string, changes []byte) {
		text = fuzzing.Edit(text, changes, "Name", "ID", "Running", "Containers", "annotations", "status",
			"containerStatuses", "initContainerStatuses", "containerID", pub.RuntimeContainersMeta,
			pub.InPlaceUpdateState, pub.SidecarSetHash)
		var s Snapshot
		if json.Unmarshal([]byte(text), &s) != nil || s.Pod == nil {
			return
		}
		has := func(id string) bool {
			return slices.ContainsFunc(s.Containers, func(c runtime.Container) bool { return c.ID == id })
		}
		before := fuzzing.JSON(s.Pod)
		plan := NewPlan(s)
		if after := fuzzing.JSON(s.Pod); after != before {
			t.Errorf("the pod was changed by looking at it from %s to %s", before, after)
		}
		for _, id := range plan.Read {
			if !has(id) {
				t.Errorf("%s: container %s is to be read", text, id)
			}
		}
		for i := range plan.Restarts {
			if c := &plan.Restarts[i].Container; !c.Running || !has(c.ID) {
				t.Errorf("%s: %+v is to be stopped", text, c)
			}
		}
		if plan.Report != "" {
			var meta inplace.RuntimeMeta
			if err := json.Unmarshal([]byte(plan.Report), &meta); err != nil || len(meta.Containers) == 0 ||
				len(meta.Containers) > len(s.Pod.Status.ContainerStatuses)+len(s.Pod.Status.InitContainerStatuses) {
				t.Errorf("%s has the report %s, %v", text, plan.Report, err)
			}
			for _, c := range meta.Containers {
				if !has(c.ContainerID) {
					t.Errorf("%s: the report %s has container %s", text, plan.Report, c.ContainerID)
				}
			}
			written := s
			written.Pod = s.Pod.DeepCopy()
			if written.Pod.Annotations == nil {
				written.Pod.Annotations = map[string]string{}
			}
			written.Pod.Annotations[pub.RuntimeContainersMeta] = plan.Report
			if again := NewPlan(written); again.Report != "" {
				t.Errorf("%s: the report %s was followed by %s", text, plan.Report, again.Report)
			}
		}
		var recorded map[string]string
		if json.Unmarshal([]byte(fuzzing.Edit(annotations, changes)), &recorded) == nil {
			if text := recorded[runtime.AnnotationPreStop]; !json.Valid([]byte(text)) && hook(recorded) != nil {
				t.Errorf("%q has the hook %+v", text, hook(recorded))
			}
			if list := ports(recorded); len(list) > len(recorded[runtime.AnnotationPorts]) {
				t.Errorf("%q has %d ports", recorded, len(list))
			}
		}
	})
}
