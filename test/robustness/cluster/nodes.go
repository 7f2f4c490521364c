package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/afloat-project/afloat/test/robustness/proxy"
	"github.com/afloat-project/afloat/test/robustness/record"
)

// daemons selects the pods of the node daemon.
const daemons = "control-plane=daemon"

// named reports whether a command line is that of a program. Those of a node have the node in a path.
func named(commandLine []byte, program string) bool {
	node, of, ok := strings.Cut(program, "-")
	if !ok || !strings.HasPrefix(node, "node") {
		return bytes.Contains(commandLine, []byte(program))
	}
	path, _, _ := bytes.Cut(commandLine, []byte{0})
	return filepath.Base(string(path)) == of && bytes.Contains(commandLine, []byte("/nodes/"+node+"/"))
}

// RealNodes returns the names of the nodes that have a kubelet and a containerd of their own.
func (c *Cluster) RealNodes() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(c.dir, "pids", "node*-kubelet.json"))
	if err != nil {
		return nil, fmt.Errorf("finding nodes: %w", err)
	}
	var all []string
	for _, path := range paths {
		all = append(all, strings.TrimSuffix(filepath.Base(path), "-kubelet.json"))
	}
	return all, nil
}

// Runs reports whether a program of the cluster runs.
func (c *Cluster) Runs(program string) bool {
	_, err := c.pid(program)
	return err == nil
}

// Daemon returns the pod of the node daemon of a node, and its process.
func (c *Cluster) Daemon(ctx context.Context, node string) (*corev1.Pod, int, error) {
	list, err := c.Kube.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: daemons,
		FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, 0, fmt.Errorf("finding the daemon of %s: %w", node, err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		for _, status := range pod.Status.ContainerStatuses {
			if status.State.Running == nil {
				continue
			}
			pid, err := c.Main(status.ContainerID)
			return pod, pid, err
		}
	}
	return nil, 0, fmt.Errorf("no daemon runs on %s", node)
}

// Main returns the main process of a container, which is named like in the status of a pod.
func (c *Cluster) Main(container string) (int, error) {
	_, id, ok := strings.Cut(container, "://")
	if !ok {
		return 0, fmt.Errorf("container %q runs in no runtime", container)
	}
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, fmt.Errorf("finding processes: %w", err)
	}
	for _, path := range groups {
		group, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(group, []byte(id)) {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err != nil || !first(status) {
			continue
		}
		return strconv.Atoi(filepath.Base(filepath.Dir(path)))
	}
	return 0, fmt.Errorf("container %s has no process", container)
}

// first reports whether a process is the first one of a namespace of processes, by its status in /proc.
func first(status []byte) bool {
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(ids)
			return len(fields) > 1 && fields[len(fields)-1] == "1"
		}
	}
	return false
}

// Crash ends the main process of a container at once.
func (c *Cluster) Crash(container string) error {
	pid, err := c.Main(container)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("ending container %s: %w", container, err)
	}
	return nil
}

// Wire puts a wire between a node and the API server, whose kubelet is started again for it. The node daemon of the manifests that
// robustness.sh applies connects to the same address.
func (c *Cluster) Wire(ctx context.Context, node string) (*proxy.Wire, error) {
	of, err := c.Kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("finding the address of %s: %w", node, err)
	}
	server, err := url.Parse(c.Server())
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	address := ""
	for _, a := range of.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			address = net.JoinHostPort(a.Address, server.Port())
		}
	}
	wire, err := proxy.NewWire(address, server.Host)
	if err != nil {
		return nil, err
	}
	if err := c.reconnect(ctx, node, "https://"+address); err != nil {
		return nil, errors.Join(err, wire.Close())
	}
	return wire, nil
}

// reconnect starts a kubelet again, with another address of the API server.
func (c *Cluster) reconnect(ctx context.Context, node, server string) error {
	path, kubelet := c.pki(node+".kubeconfig"), node+"-kubelet"
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of %s: %w", node, err)
	}
	for _, of := range config.Clusters {
		of.Server = server
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", node, err)
	}
	if err := c.Signal(kubelet, syscall.SIGKILL); err != nil {
		return err
	}
	if err := c.Gone(ctx, kubelet); err != nil {
		return err
	}
	return c.Start(ctx, kubelet)
}

// NodesReady waits until the daemon of each node is ready, and each node has a NodeImage.
func (c *Cluster) NodesReady(ctx context.Context, nodes []string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = c.nodesReady(ctx, nodes)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for nodes: %w", errors.Join(err, last))
	}
	return nil
}

func (c *Cluster) nodesReady(ctx context.Context, nodes []string) error {
	for _, node := range nodes {
		if kubelet := node + "-kubelet"; !c.Runs(kubelet) { // nobody else starts it again yet
			if err := c.Start(ctx, kubelet); err != nil {
				return err
			}
		}
		pod, _, err := c.Daemon(ctx, node)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(pod.Status.Conditions, func(of corev1.PodCondition) bool {
			return of.Type == corev1.PodReady && of.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("the daemon of %s is not ready", node)
		}
		if _, err := c.Dynamic.Resource(NodeImages).Get(ctx, node, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("finding the NodeImage of %s: %w", node, err)
		}
	}
	return nil
}

// SampleDaemon reads what the node daemon of a node takes from its metrics.
func (c *Cluster) SampleDaemon(ctx context.Context, node string) (*record.Sample, error) {
	pod, pid, err := c.Daemon(ctx, node)
	if err != nil {
		return nil, err
	}
	return sample(ctx, fmt.Sprintf("daemon of %s, process %d", node, pid), "http://"+pod.Status.PodIP+":10221")
}
