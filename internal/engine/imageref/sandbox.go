package imageref

import "strings"

// OfRuntime reports whether a label or annotation of a sandbox could control how a container runtime works,
// for example its handler or snapshotter: users must not decide that for nodes. Runtimes use names of
// reversed domains without a slash (io.containerd.cri.runtime-handler, io.kubernetes.cri-o.userns-mode), and
// their own prefixes.
func OfRuntime(key string) bool {
	key = strings.ToLower(key)
	prefix, _, slash := strings.Cut(key, "/")
	if !slash {
		return strings.Contains(key, ".")
	}

	if strings.HasPrefix(prefix, "io.") {
		return true
	}

	for _, domain := range []string{"containerd.io", "crio.io", "cri-o.io", "katacontainers.io",
		"gvisor.dev"} {
		if prefix == domain || strings.HasSuffix(prefix, "."+domain) {
			return true
		}
	}

	return false
}
