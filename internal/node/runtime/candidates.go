package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// HostRun is where the host's /var/run is mounted (ND-012).
const HostRun = "/hostvarrun"

// sockets are probed in this order (ND-031, ND-032).
var sockets = []string{
	"containerd.sock", "containerd/containerd.sock",
	"crio.sock", "crio/crio.sock",
	"cri-dockerd.sock", "cri-dockerd/cri-dockerd.sock",
	"k3s/containerd/containerd.sock", "rke2/containerd/containerd.sock", "k0s/containerd.sock",
	"k0s/containerd/containerd.sock",
}

// windowsPipe is the only endpoint on Windows (ND-018).
const windowsPipe = "npipe://./pipe/containerd-containerd"

// candidate is a place where a runtime may listen.
type candidate struct {
	endpoint string
	// missing says why there is nothing to connect to; empty if there is a socket.
	missing string
}

// candidates looks for sockets below root. If socket files are given, with commas between them, it looks only
// for these, except on Windows (ND-030, ND-031).
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
