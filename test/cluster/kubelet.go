package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// zone returns the zone label of a node, whose numbers begin with 1: z1, z2, z3, and z1 again.
func zone(i int) string { return fmt.Sprintf("z%d", (i-1)%3+1) }

// kubelet writes the configuration of the kubelet of node i, from 1, and returns the program.
func (c *cluster) kubelet(i int) (program, error) {
	node := c.nodeNames()[i-1]
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
port: 10250
healthzBindAddress: 127.0.0.1
healthzPort: %[2]d
tlsCertFile: %[3]q
tlsPrivateKeyFile: %[4]q
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[5]q}}
authorization: {mode: Webhook}
clusterDNS: [%[6]s]
clusterDomain: cluster.local
resolvConf: %[7]q
containerRuntimeEndpoint: %[8]q
podLogsDir: %[9]q
volumePluginDir: %[10]q
cgroupDriver: cgroupfs
cgroupRoot: %[11]q
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
maxPods: 250
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%, imagefs.inodesFree: 1%%}
`, c.nodeAddress(i), 10300+i, c.pki(node+"-server.crt"), c.pki(node+"-server.key"), c.pki("ca.crt"),
		c.serviceAddress(10), filepath.Join(c.dir, "resolv.conf"), "unix://"+c.nodeSocket(node),
		c.nodeDir(node, "pod-logs"), c.nodeDir(node, "volume-plugins"), "/"+c.cgroup().name+"/"+node)
	if longest := os.Getenv("MAX_BACKOFF"); longest != "" {
		config += "crashLoopBackOff: {maxContainerRestartPeriod: " + longest + "}\n"
	}
	files := map[string]string{
		c.nodeDir(node, "kubelet.yaml"):     config,
		filepath.Join(c.dir, "resolv.conf"): "nameserver " + c.serviceAddress(10) + "\n",
	}
	for path, text := range files {
		if err := writeFile(path, []byte(text), 0o644); err != nil {
			return program{}, err
		}
	}

	return program{name: node + "-kubelet", path: c.bin["kubelet"], args: []string{
		"--config=" + c.nodeDir(node, "kubelet.yaml"), "--kubeconfig=" + c.pki(node+".kubeconfig"),
		"--root-dir=" + c.nodeDir(node, "kubelet"), "--cert-dir=" + c.nodeDir(node, "kubelet", "pki"),
		"--hostname-override=" + node, "--node-ip=" + c.nodeAddress(i),
		"--node-labels=topology.kubernetes.io/zone=" + zone(i),
	}}, nil
}
