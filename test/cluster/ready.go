package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// expected returns the names of all programs of the cluster.
func (c *cluster) expected() []string {
	names := []string{"registry", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	if c.spec.Root {
		names = append([]string{namespaceHolder}, names...)
	}

	for _, n := range c.nodeNames() {
		names = append(names, n+"-containerd", n+"-kubelet")
	}

	if c.spec.Nodes > 0 {
		names = append(names, "kube-proxy")
	}
	if c.spec.CSI {
		names = append(names, "csi-driver", "csi-provisioner", "csi-resizer")
	}
	if c.spec.Simulated > 0 {
		names = append(names, "kwok")
	}

	return names
}

// mustRun returns a check that fails with the end of the log if the program does not run.
func (c *cluster) mustRun(name string) func() error {
	return func() error {
		if _, ok := c.process(name); !ok {
			return c.failed(name, errors.New("it ended"))
		}
		return nil
	}
}

func (c *cluster) allRun() error {
	var errs []error
	for _, name := range c.expected() {
		errs = append(errs, c.mustRun(name)())
	}
	return errors.Join(errs...)
}

// waitReady waits for all nodes, and for what every test needs immediately.
func (c *cluster) waitReady(ctx context.Context, a *api, s *step) error {
	return waitFor(ctx, c.allRun, func(ctx context.Context) error {
		ready, waiting, err := c.readyNodes(ctx, a)
		if err != nil {
			return err
		}
		s.set(fmt.Sprintf("%d ready", ready))
		if len(waiting) > 0 {
			return fmt.Errorf("not ready: %s", strings.Join(waiting, " "))
		}
		if c.spec.CSI {
			if err := c.csiNodes(ctx, a); err != nil {
				return err
			}
		}
		return a.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
	})
}

func (c *cluster) readyNodes(ctx context.Context, a *api) (int, []string, error) {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return 0, nil, err
	}

	have := map[string]bool{}
	ready := 0
	for _, n := range nodes {
		have[n.Metadata.Name] = n.ready()
		if n.ready() {
			ready++
		}
	}

	var waiting []string
	for name, begin := range c.restarted {
		var lease struct {
			Spec struct {
				RenewTime time.Time `json:"renewTime"`
			} `json:"spec"`
		}
		// A node stays Ready for a while after its kubelet has ended, so it counts only after the new kubelet
		// has reported.
		err := a.get(ctx, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+name, &lease)
		if err != nil || lease.Spec.RenewTime.Before(begin) {
			have[name] = false
		}
	}

	names := c.nodeNames()
	for i := 1; i <= c.spec.Simulated; i++ {
		names = append(names, simulatedName(i))
	}

	for _, n := range names {
		if !have[n] {
			waiting = append(waiting, n)
		}
	}

	return ready, waiting, nil
}

// healthy reports whether all programs run and all nodes are Ready.
func (c *cluster) healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if c.allRun() != nil {
		return false
	}
	a, err := c.api()
	if err != nil {
		return false
	}
	_, waiting, err := c.readyNodes(ctx, a)
	return err == nil && len(waiting) == 0
}
