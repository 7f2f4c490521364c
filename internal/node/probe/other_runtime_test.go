package probe

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/afloat-project/afloat/internal/node/runtime/fakecri"
)

// PPM-099, ND-036: a node has another runtime beside kubelet's (that of a build tool, without a single pod). It stops, and is
// removed, while the daemon runs. Probes of the node's pods, which are all in the runtime of kubelet, go on; otherwise the
// results of all tenants stay as they are until somebody restarts the daemon. While the runtime of kubelet does not respond,
// its containers are not taken for gone.
func TestAnotherRuntimeStopsNoProbes(t *testing.T) {
	n := newNode(t, object(spec()), true)
	n.server.Set(func(s *fakecri.Server) { s.Pods = 3 })
	n.server.Add(container("a"))
	other := &fakecri.Server{Name: "cri-o", Path: filepath.Join(n.server.Root(), "crio", "crio.sock")}
	if err := os.MkdirAll(filepath.Dir(other.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	other.Listen(t)
	list := func(when string, want int, fails bool) {
		t.Helper()
		n.set.Look(t.Context())
		found, err := set{n.set}.Containers(t.Context(), "pod")
		if (err != nil) != fails || len(found) != want {
			t.Errorf("%s: containers of the pod: got %d and error %v, want %d and an error: %t", when, len(found), err, want, fails)
		}
	}
	list("both run", 1, false)

	away := status.Error(codes.Unavailable, "starting")
	n.server.Set(func(s *fakecri.Server) { s.Failing = map[string]error{"Version": away, "ListContainers": away} })
	list("the runtime of kubelet does not respond", 0, true)
	n.server.Set(func(s *fakecri.Server) { s.Failing = nil })

	other.Set(func(s *fakecri.Server) { s.Failing = map[string]error{"Version": away, "ListContainers": away} })
	list("the other one does not respond", 1, false)
	other.Close()
	if err := os.RemoveAll(filepath.Dir(other.Path)); err != nil {
		t.Fatal(err)
	}
	list("the other one was removed", 1, false)
	n.server.Set(func(s *fakecri.Server) { s.Failing = map[string]error{"Version": away, "ListContainers": away} })
	list("the other one was removed, and the runtime of kubelet does not respond", 0, true)
}
