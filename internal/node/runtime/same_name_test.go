package runtime_test

import (
	"os"
	"path/filepath"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

// A k3s node on which the package of the system's containerd is installed, too (for builds): both runtimes are
// called containerd. The kubelet's pods run in that of k3s.
func TestTwoRuntimesOfTheSameName(t *testing.T) {
	system := fakecri.Start(t) // <root>/containerd.sock, no pods
	folder := filepath.Join(system.Root(), "k3s", "containerd")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	kubelets := &fakecri.Server{Name: "containerd", Path: filepath.Join(folder, "containerd.sock"), Pods: 3}
	kubelets.Listen(t)
	t.Cleanup(kubelets.Close)
	kubelets.Add(fakecri.Container{ID: "c", Name: "app", Namespace: "ns", Pod: "p", UID: "u",
		State: cri.ContainerState_CONTAINER_RUNNING})

	set := runtime.NewSet(runtime.Options{Root: system.Root()})
	set.Look(t.Context())
	r, err := set.ForContainer("containerd://c")
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.Containers(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 {
		t.Errorf("containers of the pod in the runtime of its container: got %d, want 1", len(list))
	}
	if _, err := r.Status(t.Context(), "containerd://c"); err != nil {
		t.Errorf("inspecting the container: %v", err)
	}
}
