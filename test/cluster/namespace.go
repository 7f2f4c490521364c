package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// With root, every cluster has its own network and mount namespace. Its iptables rules, bridges, mounts and
// the fixed folders that Kubernetes writes to therefore do not interfere with the machine or with other
// clusters, and disappear with its last process.

// namespaceHolder is the process that keeps the namespaces open while nothing else runs in them.
const namespaceHolder = "namespaces"

// privateDirs maps folders of the machine to the folders below the cluster's folder that its programs see
// instead, because their paths cannot be configured: shim sockets and locks, the results of CNI calls, the
// socket for device plugins, dynamic volumes, links to logs.
var privateDirs = map[string]string{
	"/run":             "run",
	"/var/log":         "var-log",
	"/var/lib/cni":     "cni-results",
	"/var/lib/kubelet": "device-plugins",
	"/tmp/hostpath_pv": "volumes",
}

// privateSysctls are machine-wide settings that a kubelet insists on. It sees files that already have these
// values.
var privateSysctls = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// namespacePID returns a running process in the cluster's namespaces.
func (c *cluster) namespacePID() (int, bool) {
	if r, ok := c.process(namespaceHolder); ok {
		return r.PID, true
	}
	for _, r := range c.processes() {
		if r.alive() {
			return r.PID, true
		}
	}
	return 0, false
}

// enter returns the command prefix that runs a program in the cluster's namespaces under the same process ID.
func (c *cluster) enter() []string {
	pid, _ := c.namespacePID()
	return []string{"nsenter", "--target", strconv.Itoa(pid), "--net", "--mount", "--"}
}

// inside runs a command in the cluster's namespaces and waits for it.
func (c *cluster) inside(argv ...string) error { return run(append(c.enter(), argv...)...) }

func run(argv ...string) error {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// ensureNamespaces creates the namespaces, or only their holder if another program has kept them open.
func (c *cluster) ensureNamespaces() error {
	if _, ok := c.process(namespaceHolder); ok {
		return nil
	}
	if _, ok := c.namespacePID(); ok {
		return c.spawn(namespaceHolder, append(c.enter(), "sleep", "infinity"))
	}
	// Nobody can enter the namespaces of containers that have outlived everything else.
	if err := c.cgroup().kill(); err != nil {
		return err
	}
	if err := c.deleteLink(); err != nil {
		return err
	}
	if err := c.spawn(namespaceHolder, []string{"unshare", "--net", "--mount", "--propagation", "private",
		"sleep", "infinity"}); err != nil {
		return err
	}

	r, _ := c.process(namespaceHolder)
	if err := waitNamespaces(r.PID); err != nil {
		return c.failed(namespaceHolder, err)
	}
	if err := c.privateMounts(); err != nil {
		return err
	}

	return c.setUpNetwork(r.PID)
}

// waitNamespaces waits until the process has left our namespaces and executes its program.
func waitNamespaces(pid int) error {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(
		2 * time.Millisecond) {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			return fmt.Errorf("it ended: %w", err)
		}
		if strings.TrimSpace(string(comm)) == "sleep" {
			return nil
		}
	}
	return errors.New("no namespaces after 5 seconds")
}

func (c *cluster) privateMounts() error {
	if err := c.inside("mount", "-n", "--make-rshared", "/"); err != nil {
		return err
	}

	for _, target := range slices.Sorted(maps.Keys(privateDirs)) {
		own := filepath.Join(c.dir, privateDirs[target])
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := c.makeMountPoint(target); err != nil {
			return err
		}
		if err := c.inside("mount", "-n", "--bind", own, target); err != nil {
			return err
		}
	}

	for name, value := range privateSysctls {
		own := filepath.Join(c.dir, "sysctl", strings.ReplaceAll(name, "/", "."))
		if err := writeFile(own, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := c.inside("mount", "-n", "--bind", own, filepath.Join("/proc/sys", name)); err != nil {
			return err
		}
	}

	return nil
}

// makeMountPoint creates a folder of the machine if it is missing, and records that it must be removed.
func (c *cluster) makeMountPoint(path string) error {
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.Contains(c.spec.Made, path) {
		c.spec.Made = append(c.spec.Made, path)
	}
	return c.save()
}

// removeMountPoints removes what makeMountPoint created. If another cluster runs, it hands the task over to
// that cluster, because removing a folder would also remove the mount of that cluster on it.
func (c *cluster) removeMountPoints() error {
	if len(c.spec.Made) == 0 {
		return nil
	}

	others, err := c.others()
	if err != nil {
		return err
	}

	for _, o := range others {
		if o.spec.Root {
			for _, path := range c.spec.Made {
				if !slices.Contains(o.spec.Made, path) {
					o.spec.Made = append(o.spec.Made, path)
				}
			}
			return o.save()
		}
	}

	for _, path := range c.spec.Made {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.out.say("%s was made by this cluster but is in use now: %v", path, err)
		}
	}

	return nil
}

// linkName returns the name of this machine's end of the link to the cluster.
func (c *cluster) linkName() string { return fmt.Sprintf("afloat%d", c.spec.Index) }

// setUpNetwork creates a link from this machine to the cluster's network, and routes pods and services
// through it.
func (c *cluster) setUpNetwork(pid int) error {
	link := c.linkName()
	steps := [][]string{
		{"ip", "link", "add", link, "type", "veth", "peer", "name", "uplink", "netns", strconv.Itoa(pid)},
		{"ip", "addr", "add", c.hostAddress() + "/30", "dev", link},
		{"ip", "link", "set", link, "up"},
	}
	inside := [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "addr", "add", c.address() + "/30", "dev", "uplink"},
		{"ip", "link", "set", "uplink", "up"},
		{"sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"},
	}
	for i := range c.spec.Nodes {
		inside = append(inside, []string{"ip", "addr", "add", c.nodeAddress(i+1) + "/32", "dev", "uplink"})
	}

	for _, s := range inside {
		steps = append(steps, append(c.enter(), s...))
	}

	steps = append(steps,
		[]string{"ip", "route", "add", c.podCIDR(), "via", c.address(), "dev", link},
		[]string{"ip", "route", "add", c.serviceCIDR(), "via", c.address(), "dev", link})
	for _, s := range steps {
		if err := run(s...); err != nil {
			return fmt.Errorf("set up the network: %w", err)
		}
	}

	return nil
}

// deleteLink removes this machine's end of the link, and with it the routes.
func (c *cluster) deleteLink() error {
	if _, err := os.Stat("/sys/class/net/" + c.linkName()); err != nil {
		return nil //nolint:nilerr // there is none
	}
	if err := run("ip", "link", "del", c.linkName()); err != nil {
		if _, gone := os.Stat("/sys/class/net/" + c.linkName()); gone == nil {
			return err
		}
	}
	return nil
}

// chooseIndex chooses address ranges that neither another cluster nor a route of this machine uses.
func (c *cluster) chooseIndex() error {
	out, err := exec.Command("ip", "-j", "route", "show", "table", "all").Output()
	if err != nil {
		return fmt.Errorf("list the routes: %w", err)
	}

	var routes []struct{ Dst string }
	if err := json.Unmarshal(out, &routes); err != nil {
		return fmt.Errorf("list the routes: %w", err)
	}

	others, err := c.others()
	if err != nil {
		return err
	}

	taken := map[int]bool{}
	for _, o := range others {
		if o.spec.Root {
			taken[o.spec.Index] = true
		}
	}

	for i := range 11 {
		used := taken[i]
		for _, r := range routes {
			if strings.HasPrefix(r.Dst, fmt.Sprintf("10.%d.", 244+i)) ||
				strings.HasPrefix(r.Dst, fmt.Sprintf("10.%d.", 96+i)) {
				used = true
			}
		}
		if !used {
			c.spec.Index = i
			return nil
		}
	}

	return errors.New(
		"no free address range: 10.244 to 10.254 and 10.96 to 10.106 are all in use; take a cluster down")
}
