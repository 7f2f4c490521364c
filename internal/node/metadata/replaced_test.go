package metadata

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// ND-116 (part): the image of a running container is known by its hash if that is kubelet's of today,
// otherwise by the name of the image, and where the runtime does not tell it by the record of the update.
func TestWhichContainersKubeletReplaces(t *testing.T) {
	app := &corev1.Container{Name: "app", Image: "app:1"}
	same, other := number(inplace.PlainHash("app", "app:1")), number(inplace.PlainHash("app", "app:2"))
	for name, tt := range map[string]struct {
		current runtime.Container
		state   inplace.State
		want    bool
	}{
		"the same hash":                           {runtime.Container{PlainHash: same}, inplace.State{}, false},
		"another hash, and no record":             {runtime.Container{PlainHash: other}, inplace.State{}, true},
		"the same hash under another name":        {runtime.Container{PlainHash: same, Image: "mirror/app:x"}, inplace.State{}, false},
		"kubelet 1.30, the same image":            {runtime.Container{PlainHash: other, Image: "app:1"}, inplace.State{}, false},
		"kubelet 1.30, another image":             {runtime.Container{PlainHash: other, Image: "app:0"}, inplace.State{}, true},
		"the same image, written otherwise":       {runtime.Container{PlainHash: other, Image: "docker.io/library/app:1"}, inplace.State{}, true},
		"kubelet 1.30, no image, no change of it": {runtime.Container{PlainHash: other}, inplace.State{Revision: "r"}, false},
		"kubelet 1.30, no image, a change of it": {runtime.Container{PlainHash: other}, inplace.State{Revision: "r",
			LastContainerStatuses: map[string]inplace.ContainerRecord{"app": {}}}, true},
		"no hash, the same image":             {runtime.Container{Image: "docker.io/library/app:1"}, inplace.State{}, false},
		"no hash, another image":              {runtime.Container{Image: "app:2"}, inplace.State{}, true},
		"neither hash nor image are reported": {runtime.Container{}, inplace.State{}, false},
	} {
		if got := replaced(app, &tt.current, &tt.state); got != tt.want {
			t.Errorf("%s: kubelet replaces the container: got %t, want %t", name, got, tt.want)
		}
	}
}

// ND-110 (part): on a node whose kubelet is of 1.30, which stores a hash of the whole container, a pod gets
// its new environment.
func TestOlderKubeletsHaveEnvironmentsChanged(t *testing.T) {
	const whole = 2718281828
	p := pod("b", updatingPod, report(row("app", 1, whole, hash("a")), row("side", 1, whole, noEnv)))
	older := func(c *runtime.Container) { c.PlainHash = whole }
	s := Snapshot{Pod: p, EnvFromMetadata: true, Environments: map[string]map[string]string{"containerd://app-1": {"V": "a"}},
		Containers: []runtime.Container{container("app", 1, "app:1", older), container("side", 1, "side:1", older)}}
	if plan := NewPlan(s); len(plan.Restarts) != 1 {
		t.Errorf("restarts: got %v, want 1; left to kubelet: %q", plan.Restarts, plan.Left)
	} else if id := plan.Restarts[0].Container.ID; id != "containerd://app-1" {
		t.Errorf("the container that is restarted: got %s, want containerd://app-1", id)
	}
	p.Spec.Containers[1].Image = "app:2"
	plan := NewPlan(s)
	if len(plan.Restarts) != 0 {
		t.Errorf("restarts with a new image: got %v, want none", plan.Restarts)
	}
	if len(plan.Left) != 1 {
		t.Errorf("containers that are left to kubelet with a new image: got %q, want 1", plan.Left)
	}
}
