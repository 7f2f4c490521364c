package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// spec is what a cluster was started with. It is stored in the cluster's folder.
type spec struct {
	Version   string   `json:"version"`
	Nodes     int      `json:"nodes"`
	Simulated int      `json:"simulated"`
	CSI       bool     `json:"csi,omitempty"`
	Root      bool     `json:"root"`
	Index     int      `json:"index"` // picks the address ranges; free among the running clusters
	Ports     ports    `json:"ports"`
	Made      []string `json:"made,omitempty"` // folders of the machine that were missing and had to be made
}

// ports are fixed in a cluster with its own network, and free ports of loopback in a cluster without root.
type ports struct {
	API, Registry, Etcd, EtcdPeer, ControllerManager, Scheduler, Kwok int
}

// cluster is a cluster of this machine, running or not.
type cluster struct {
	name string
	dir  string
	spec spec
	bin  map[string]string // program -> path
	out  *progress

	restarted map[string]time.Time // nodes whose kubelet this run has started, and when
}

var namePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$`)

// stateRoot returns the folder of all clusters of this user.
func stateRoot() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/afloat-cluster", nil
	}
	if d := os.Getenv("XDG_STATE_HOME"); d != "" {
		return filepath.Join(d, "afloat", "cluster"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the state folder: %w", err)
	}
	return filepath.Join(home, ".local", "state", "afloat", "cluster"), nil
}

// openCluster returns the cluster of the given name, with its recorded spec if it exists.
func openCluster(name string, out *progress) (*cluster, error) {
	if !namePattern.MatchString(name) {
		return nil, fmt.Errorf("CLUSTER=%s: a name has at most 20 lower-case letters, digits and dashes",
			name)
	}

	root, err := stateRoot()
	if err != nil {
		return nil, err
	}

	c := &cluster{name: name, dir: filepath.Join(root, name), out: out, restarted: map[string]time.Time{}}
	b, err := os.ReadFile(c.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &c.spec); err != nil {
		return nil, fmt.Errorf("read %s: %w", c.statePath(), err)
	}

	return c, nil
}

func (c *cluster) statePath() string { return filepath.Join(c.dir, "cluster.json") }

// exists reports whether the cluster was started and not taken down.
func (c *cluster) exists() bool { return c.spec.Version != "" }

func (c *cluster) save() error {
	b, err := json.MarshalIndent(c.spec, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(c.statePath(), append(b, '\n'), 0o644)
}

// others returns the other clusters below the same folder.
func (c *cluster) others() ([]*cluster, error) {
	files, err := filepath.Glob(filepath.Join(filepath.Dir(c.dir), "*", "cluster.json"))
	if err != nil {
		return nil, err
	}

	var all []*cluster
	for _, f := range files {
		name := filepath.Base(filepath.Dir(f))
		if name == c.name {
			continue
		}
		o, err := openCluster(name, c.out)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}

	return all, nil
}

// lock locks a file or folder until the returned function is called.
func lock(path string) (func(), error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// lockAll serializes actions that affect several clusters: the choice of addresses, and changes of shared
// folders.
func (c *cluster) lockAll() (func(), error) {
	root := filepath.Dir(c.dir)
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	return lock(root)
}

// lockOne prevents two commands from changing the same cluster at once. It creates the cluster's folder.
func (c *cluster) lockOne() (func(), error) {
	for {
		if err := os.MkdirAll(c.dir, 0o755); err != nil {
			return nil, err
		}
		before, err := os.Stat(c.dir)
		if err != nil {
			continue
		}
		unlock, err := lock(c.dir)
		if err != nil {
			return nil, err
		}
		if after, err := os.Stat(c.dir); err == nil && os.SameFile(before, after) {
			return unlock, nil
		}
		unlock() // taken down while we waited
	}
}

// nodeNames returns the names of the real nodes.
func (c *cluster) nodeNames() []string {
	var names []string
	for i := 1; i <= c.spec.Nodes; i++ {
		names = append(names, fmt.Sprintf("node%d", i))
	}
	return names
}

func (c *cluster) path() string {
	dirs := []string{}
	seen := map[string]bool{}
	for _, p := range c.bin {
		if d := filepath.Dir(p); !seen[d] {
			seen[d] = true
			dirs = append(dirs, d)
		}
	}
	return strings.Join(append(dirs, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin",
		"/bin"), ":")
}

func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// address returns the address of the control plane and the registry.
func (c *cluster) address() string {
	if !c.spec.Root {
		return "127.0.0.1"
	}
	return fmt.Sprintf("10.%d.0.1", 244+c.spec.Index)
}

// hostAddress returns the address of this machine as seen by the cluster.
func (c *cluster) hostAddress() string {
	if !c.spec.Root {
		return "127.0.0.1"
	}
	return fmt.Sprintf("10.%d.0.2", 244+c.spec.Index)
}

// nodeAddress returns the internal address of real node i, from 1.
func (c *cluster) nodeAddress(i int) string { return fmt.Sprintf("10.%d.0.%d", 244+c.spec.Index, 10+i) }

func (c *cluster) podCIDR() string { return fmt.Sprintf("10.%d.0.0/16", 244+c.spec.Index) }

// nodePodCIDR returns the range of pod addresses of real node i, from 1.
func (c *cluster) nodePodCIDR(i int) string { return fmt.Sprintf("10.%d.%d.0/24", 244+c.spec.Index, i) }

func (c *cluster) serviceCIDR() string { return fmt.Sprintf("10.%d.0.0/16", 96+c.spec.Index) }

func (c *cluster) serviceAddress(last int) string {
	return fmt.Sprintf("10.%d.0.%d", 96+c.spec.Index, last)
}

func (c *cluster) server() string { return fmt.Sprintf("https://%s:%d", c.address(), c.spec.Ports.API) }

func (c *cluster) registry() string { return fmt.Sprintf("%s:%d", c.address(), c.spec.Ports.Registry) }

// choosePorts sets the usual ports in a cluster with its own network, and free ports otherwise.
func (c *cluster) choosePorts() error {
	p := &c.spec.Ports
	if c.spec.Root {
		*p = ports{API: 6443, Registry: 5000, Etcd: 2379, EtcdPeer: 2380, ControllerManager: 10257,
			Scheduler: 10259, Kwok: 10247}
		return nil
	}

	for _, port := range []*int{&p.API, &p.Registry, &p.Etcd, &p.EtcdPeer, &p.ControllerManager, &p.Scheduler,
		&p.Kwok} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // held until all are chosen, so that all differ
		*port = l.Addr().(*net.TCPAddr).Port
	}

	return nil
}
