package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// HostRun is the mount path of the host's /var/run (ND-012).
const HostRun = "/hostvarrun"

// sockets lists the sockets in the order in which they are probed.
var sockets = []string{
	"containerd.sock", "containerd/containerd.sock",
	"crio.sock", "crio/crio.sock",
	"cri-dockerd.sock", "cri-dockerd/cri-dockerd.sock",
	"k3s/containerd/containerd.sock", "rke2/containerd/containerd.sock", "k0s/containerd.sock",
	"k0s/containerd/containerd.sock",
}

// windowsPipe is the only endpoint on Windows.
const windowsPipe = "npipe://./pipe/containerd-containerd"

// candidate is an endpoint at which a runtime may listen.
type candidate struct {
	endpoint string
	// missing is the reason why a connection is impossible. It is empty if there is a socket.
	missing string
}

// candidates looks for sockets below root. If socketFile is set, which is a comma-separated list, it looks
// only for these, except on Windows.
func candidates(goos, root, socketFile string) []candidate {
	if goos == "windows" {
		return []candidate{{endpoint: windowsPipe}}
	}

	names := sockets
	if socketFile != "" {
		names = strings.Split(socketFile, ",")
	}

	found := make([]candidate, len(names))
	for i, name := range names {
		path := filepath.Join(root, name)
		found[i].endpoint = "unix://" + path
		switch info, err := os.Stat(path); {
		case os.IsNotExist(err):
			found[i].missing = "no such file"
		case err != nil:
			found[i].missing = err.Error()
		case info.Mode()&os.ModeSocket == 0:
			found[i].missing = fmt.Sprintf("not a socket (%s)", info.Mode())
		}
	}

	return found
}
