package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// nodeDir returns the path of a file in the folder of a node, which belongs to its containerd and kubelet.
func (c *cluster) nodeDir(node string, path ...string) string {
	return filepath.Join(append([]string{c.dir, "nodes", node}, path...)...)
}

// nodeSocket returns the path of the runtime's socket. Its folder contains nothing else: a pod that mounted
// the folder of the node would also mount what kubelet mounts there, including its own mount, and none of
// these could be unmounted any more.
func (c *cluster) nodeSocket(node string) string {
	return filepath.Join(c.dir, "sockets", node, "containerd.sock")
}

func (c *cluster) pauseImage() string { return c.registry() + "/pause:1" }

// containerd writes the configuration of the container runtime of node i, from 1, and returns the program.
func (c *cluster) containerd(i int) (program, error) {
	node := c.nodeNames()[i-1]
	config := fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing"]

[grpc]
  address = %[3]q

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %[4]q
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = %[5]q

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE runc cannot lower oom_score_adj and would give up.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%[6]q]
    conf_dir = %[7]q
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      runtime_path = %[8]q
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = %[9]q
        Root = %[10]q
        SystemdCgroup = false

[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
`, c.nodeDir(node, "containerd"), c.nodeDir(node, "containerd-state"), c.nodeSocket(node), c.pauseImage(),
		filepath.Join(c.dir, "certs.d"), filepath.Dir(c.bin["ptp"]), c.nodeDir(node, "cni"),
		c.bin["containerd-shim-runc-v2"], c.bin["runc"], c.nodeDir(node, "runc"))
	files := map[string]string{
		c.nodeDir(node, "containerd.toml"):                     config,
		c.nodeDir(node, "cni", "10-afloat.conflist"):           c.cniConfig(i),
		filepath.Join(c.dir, "certs.d/_default", "hosts.toml"): c.hostsConfig(),
	}
	for path, text := range files {
		if err := writeFile(path, []byte(text), 0o644); err != nil {
			return program{}, err
		}
	}

	return program{name: node + "-containerd", path: c.bin["containerd"],
		args: []string{"--config=" + c.nodeDir(node, "containerd.toml"), "--log-level=warn"}}, nil
}

// cniConfig connects every pod to the cluster's network by a link with routes only. All traffic therefore
// passes the rules of kube-proxy, which traffic within a bridge would not.
func (c *cluster) cniConfig(i int) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "afloat",
  "plugins": [
    {"type": "ptp", "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, c.nodeDir(c.nodeNames()[i-1], "addresses"), c.nodePodCIDR(i))
}

// hostsConfig redirects the pulls from every registry to the cluster's own.
func (c *cluster) hostsConfig() string {
	return fmt.Sprintf(
		"server = \"http://%[1]s\"\n\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
		c.registry())
}

// waitSocket waits until a unix socket accepts connections.
func (c *cluster) waitSocket(ctx context.Context, name, path string) error {
	return waitFor(ctx, c.mustRun(name), func(context.Context) error {
		if _, err := os.Stat(path); err != nil {
			return err
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
