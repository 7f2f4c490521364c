package imageref

import "testing"

// What users give with a pull does not choose how a runtime works, and what they call their own passes.
func TestKeysOfRuntimes(t *testing.T) {
	for key, want := range map[string]bool{
		"io.containerd.cri.runtime-handler":           true,
		"IO.containerd.cri.runtime-handler":           true,
		"io.kubernetes.cri.untrusted-workload":        true,
		"io.kubernetes.cri-o.userns-mode":             true,
		"io.containerd.x/y":                           true,
		"containerd.io/snapshot/remote/stargz.digest": true,
		"cpu-load-balancing.crio.io":                  true,
		"irq-load-balancing.crio.io/app":              true,
		"dev.gvisor.spec.mount":                       true,
		"team":                                        false,
		"example.com/p2p":                             false,
		"app.kubernetes.io/name":                      false,
		"mycontainerd.io/x":                           false,
	} {
		if got := OfRuntime(key); got != want {
			t.Errorf("key %s is a runtime's: got %t, want %t", key, got, want)
		}
	}
}
