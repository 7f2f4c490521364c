package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// request contains the options of the command; nil means that an option was not given.
type request struct {
	version   *string
	nodes     *int
	simulated *int
	csi       bool // also added to a running cluster
}

// settle converts the request to the spec of a new cluster, or compares it with that of the existing one.
func (r request) settle(c *cluster, root bool) error {
	if !c.exists() {
		s := spec{Version: defaultVersion, Root: root}
		if root {
			s.Nodes = 2
		} else {
			s.Simulated = 20
		}

		if r.version != nil {
			s.Version = *r.version
		}
		if r.nodes != nil {
			s.Nodes = *r.nodes
		}
		if r.simulated != nil {
			s.Simulated = *r.simulated
		}
		if err := checkVersion(s.Version); err != nil {
			return err
		}

		if !root && s.Nodes > 0 {
			return fmt.Errorf(
				"NODES=%d: real nodes need root; without it there is the control plane with simulated nodes",
				s.Nodes)
		}

		if s.Nodes < 0 || s.Nodes > 50 || s.Simulated < 0 {
			return fmt.Errorf(
				"NODES=%d SIMULATED=%d: want 0 to 50 real nodes and any number of simulated ones",
				s.Nodes, s.Simulated)
		}

		c.spec = s
		return r.settleCSI(c)
	}

	have := c.spec
	if r.version != nil && *r.version != have.Version || r.nodes != nil && *r.nodes != have.Nodes ||
		r.simulated != nil && *r.simulated != have.Simulated {
		return fmt.Errorf("cluster %s already is there with K8S_VERSION=%s NODES=%d SIMULATED=%d: take it down first, or set CLUSTER to another name",
			c.name, have.Version, have.Nodes, have.Simulated)
	}

	return r.settleCSI(c)
}

func (r request) settleCSI(c *cluster) error {
	if r.csi && c.spec.Nodes == 0 {
		return errors.New("CSI=1: the driver serves real nodes, and there are none")
	}
	c.spec.CSI = c.spec.CSI || r.csi
	return nil
}

// up creates or repairs the cluster, and waits until its nodes are Ready.
func (c *cluster) up(ctx context.Context, r request) error {
	begin := time.Now()
	root := os.Geteuid() == 0
	if err := r.settle(c, root); err != nil {
		return err
	}
	if !root {
		c.out.say("without root: control plane and simulated nodes only, no containers")
	}

	if root {
		if err := ensureTools(systemTools, c.out); err != nil {
			return err
		}
	}

	var err error
	if c.bin, err = ensureBinaries(c.spec.Version, c.needs(), c.out); err != nil {
		return err
	}

	unlock, err := c.lockOne()
	if err != nil {
		return err
	}

	defer unlock()
	again, err := openCluster(c.name, c.out)
	if err != nil {
		return err
	}

	c.spec = again.spec
	if err := r.settle(c, root); err != nil {
		return err
	}

	existed := c.exists() && again.exists()
	if !existed {
		if err := c.reserve(); err != nil {
			return err
		}
	} else if err := c.save(); err != nil { // the driver may have been added
		return err
	} else if c.healthy(ctx) {
		c.out.say("cluster %s is up already", c.name)
		c.next()
		return nil
	} else {
		c.out.say("cluster %s is there but not whole; starting what is missing", c.name)
	}

	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("not ready after 3 minutes"))
	defer cancel()
	if err := c.bring(ctx); err != nil {
		return err
	}

	c.out.say("cluster %s with Kubernetes %s is up after %s", c.name, c.spec.Version,
		human(time.Since(begin)))
	c.next()
	return nil
}

// needs returns the names of the components that this cluster needs.
func (c *cluster) needs() []string {
	n := []string{"etcd", "kubernetes", "pause"}
	if c.spec.Nodes > 0 {
		n = append(n, "containerd", "runc", "cni")
	}
	if c.spec.CSI {
		n = append(n, "csi-driver", "csi-provisioner", "csi-resizer")
	}
	if c.spec.Simulated > 0 {
		n = append(n, "kwok")
	}
	return n
}

// reserve chooses addresses and ports and records the cluster.
func (c *cluster) reserve() error {
	unlock, err := c.lockAll()
	if err != nil {
		return err
	}

	defer unlock()
	if c.spec.Root {
		if err := c.chooseIndex(); err != nil {
			return err
		}
	}

	if err := c.choosePorts(); err != nil {
		return err
	}

	return c.save()
}

// bring starts everything that does not run, in order, and waits where the next step depends on it.
func (c *cluster) bring(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}

	images, err := c.startRegistry(ctx)
	if err != nil {
		return err
	}

	s := c.out.step("control plane", 5*time.Second)
	if err := s.end(c.startControlPlane(ctx)); err != nil {
		return err
	}

	a, err := c.api()
	if err != nil {
		return err
	}
	if err := c.startNodes(ctx, a); err != nil {
		return err
	}
	if err := <-images; err != nil {
		return err
	}

	s = c.out.step(fmt.Sprintf("nodes: %d real, %d simulated", c.spec.Nodes, c.spec.Simulated),
		10*time.Second)
	return s.end(c.waitReady(ctx, a, s))
}

// prepare creates folders, control groups, namespaces and certificates.
func (c *cluster) prepare() error {
	for _, d := range []string{"logs", "pids", "tmp", "bin"} {
		if err := os.MkdirAll(filepath.Join(c.dir, d), 0o755); err != nil {
			return err
		}
	}

	for _, node := range c.nodeNames() {
		if err := os.MkdirAll(filepath.Dir(c.nodeSocket(node)), 0o755); err != nil {
			return err
		}
	}

	if c.spec.Root {
		if err := c.cgroup().create(c.nodeNames()); err != nil {
			return err
		}
		if err := c.ensureNamespaces(); err != nil {
			return err
		}
	}

	if err := c.ensurePKI(); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}

	return writeFile(filepath.Join(c.dir, "audit-policy.yaml"), auditPolicy, 0o644)
}

// startRegistry starts the registry and fills it in the background.
func (c *cluster) startRegistry(ctx context.Context) (<-chan error, error) {
	self := filepath.Join(c.dir, "bin", "afloat-cluster")
	if _, ok := c.process("registry"); !ok {
		if err := copySelf(self); err != nil {
			return nil, err
		}
	}

	if _, err := c.start(c.registryProgram()); err != nil {
		return nil, err
	}
	if err := c.waitRegistry(ctx); err != nil {
		return nil, err
	}

	filled := make(chan error, 1)
	if c.spec.Nodes == 0 {
		filled <- nil
		return filled, nil
	}

	go func() { filled <- c.pushTestImages(false) }()
	return filled, nil
}

func copySelf(to string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}

	defer from.Close()
	tmp, err := os.OpenFile(to+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(tmp, from); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}

	return os.Rename(to+".tmp", to)
}

func (c *cluster) startControlPlane(ctx context.Context) error {
	for _, p := range []program{c.etcd(), c.apiServer()} {
		if _, err := c.start(p); err != nil {
			return err
		}
	}

	a, err := c.api()
	if err != nil {
		return err
	}

	running := func() error { return errors.Join(c.mustRun("etcd")(), c.mustRun("kube-apiserver")()) }
	err = waitFor(ctx, running, func(ctx context.Context) error {
		return a.get(ctx, "/readyz", nil) // readiness includes the default roles
	})

	if err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}

	for _, p := range []program{c.controllerManager(), c.scheduler()} {
		if _, err := c.start(p); err != nil {
			return err
		}
	}

	return a.apply(ctx, "/apis/storage.k8s.io/v1/storageclasses/standard", object{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
		"metadata": object{"name": "standard",
			"annotations": object{"storageclass.kubernetes.io/is-default-class": "true"}},
		"provisioner": "kubernetes.io/host-path", "allowVolumeExpansion": true,
	})
}

func (c *cluster) startNodes(ctx context.Context, a *api) error {
	for i, node := range c.nodeNames() {
		p, err := c.containerd(i + 1)
		if err != nil {
			return err
		}
		if _, err := c.start(p); err != nil {
			return err
		}
		if p, err = c.kubelet(i + 1); err != nil {
			return err
		}
		if err := c.waitSocket(ctx, node+"-containerd", c.nodeSocket(node)); err != nil {
			return err
		}
		begin := time.Now()
		started, err := c.start(p)
		if err != nil {
			return err
		}
		if started {
			c.restarted[node] = begin
		}
	}

	if c.spec.Nodes > 0 {
		if _, err := c.start(c.proxy()); err != nil {
			return err
		}
	}

	if c.spec.CSI {
		if err := c.startCSI(ctx, a); err != nil {
			return err
		}
	}

	if c.spec.Simulated > 0 {
		p, err := c.kwok()
		if err != nil {
			return err
		}
		if _, err := c.start(p); err != nil {
			return err
		}
		return c.applySimulatedNodes(ctx, a)
	}

	return nil
}

// next prints what the user can do next.
func (c *cluster) next() {
	c.out.say("\n  export KUBECONFIG=%s\n  export PATH=%s:$PATH\n  kubectl get nodes -o wide\n",
		c.kubeconfig(), filepath.Dir(c.bin["kubectl"]))
	c.out.say("images: go run . image build --help   state: go run . status   end: go run . down")
}
