package runtime

import (
	"strings"
	"testing"
)

// ND-018 (part), ND-030, ND-031, ND-032, OPS-026 (part), OPS-121 (part): the candidates in their order; on
// Windows always one pipe.
func TestCandidates(t *testing.T) {
	names := func(goos, socketFile string) string {
		var all []string
		for _, c := range candidates(goos, "/none", socketFile) {
			all = append(all, c.endpoint)
		}
		return strings.ReplaceAll(strings.Join(all, " "), "unix:///none/", "")
	}
	for want, got := range map[string]string{
		"containerd.sock containerd/containerd.sock crio.sock crio/crio.sock cri-dockerd.sock cri-dockerd/cri-dockerd.sock " +
			"k3s/containerd/containerd.sock rke2/containerd/containerd.sock k0s/containerd.sock k0s/containerd/containerd.sock": names(
			"linux", ""),
		"my/own.sock":                          names("linux", "my/own.sock"),
		"my/own.sock other.sock":               names("linux", "my/own.sock,other.sock"),
		"npipe://./pipe/containerd-containerd": names("windows", "my/own.sock"),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if strings.Contains(got, "dockershim") { // OPS-121
			t.Errorf("candidates: got %s, want none of dockershim", got)
		}
	}
}
