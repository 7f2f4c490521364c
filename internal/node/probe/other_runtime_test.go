package probe

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

// A node has another runtime beside kubelet's (that of a build tool, without a single pod). It is stopped and removed
// while the daemon runs. Probes of the node's pods, which are all in the runtime of kubelet, go on; otherwise the results
// of all tenants stay as they are until somebody restarts the daemon.
func TestAnotherRuntimeIsRemoved(t *testing.T) {
	n := newNode(t, object(spec()), true)
	n.server.Set(func(s *fakecri.Server) { s.Pods = 3 })
	n.server.Add(container("a"))
	other := &fakecri.Server{Name: "cri-o", Path: filepath.Join(n.server.Root(), "crio", "crio.sock")}
	if err := os.MkdirAll(filepath.Dir(other.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	other.Listen(t)
	n.set.Look(t.Context())
	containers := set{n.set}
	list := func(when string) {
		t.Helper()
		found, err := containers.Containers(t.Context(), "pod")
		if err != nil {
			t.Errorf("%s: listing the containers of a pod of kubelet's runtime: %v", when, err)
		} else if len(found) != 1 {
			t.Errorf("%s: containers of the pod: got %d, want 1", when, len(found))
		}
	}
	list("both run")
	other.Close()
	if err := os.RemoveAll(filepath.Dir(other.Path)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n.set.Look(t.Context())
	}
	list("the other one was removed")
}
