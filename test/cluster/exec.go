package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
)

// execCommand becomes a program of the user, where it can reach the cluster's own addresses and its loopback.
func execCommand() *cobra.Command {
	return &cobra.Command{
		Use: "exec -- PROGRAM [ARGS]", Args: cobra.MinimumNArgs(1),
		Short: "Run a program in the cluster's network, in the foreground",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := openExisting()
			if err != nil {
				return err
			}
			if c.spec.Root {
				args = append(c.enter(), args...)
			}
			path, err := exec.LookPath(args[0])
			if err != nil {
				return fmt.Errorf("find %s: %w", args[0], err)
			}
			return syscall.Exec(path, args, os.Environ())
		},
	}
}

// startCommand starts one program of the cluster that has ended, and does not wait until it is ready.
func startCommand() *cobra.Command {
	return &cobra.Command{
		Use: "start PROGRAM", Args: cobra.ExactArgs(1),
		Short: "Start one program that has ended: etcd, kube-apiserver and so on, kwok, or node1-kubelet and node1-containerd",
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := openExisting()
			if err != nil {
				return err
			}
			if c.bin, err = ensureBinaries(c.spec.Version, c.needs(), c.out); err != nil {
				return err
			}
			p, err := c.controlProgram(args[0])
			if err != nil {
				return err
			}
			unlock, err := c.lockOne()
			if err != nil {
				return err
			}
			defer unlock()
			_, err = c.start(p)
			return err
		},
	}
}

// controlProgram returns a program of the control plane or of a node by its name.
func (c *cluster) controlProgram(name string) (program, error) {
	if name == "kwok" && c.spec.Simulated > 0 {
		return c.kwok()
	}
	for i, node := range c.nodeNames() {
		switch name {
		case node + "-kubelet":
			return c.kubelet(i + 1)
		case node + "-containerd":
			return c.containerd(i + 1)
		}
	}
	for _, p := range []program{c.etcd(), c.apiServer(), c.controllerManager(), c.scheduler()} {
		if p.name == name {
			return p, nil
		}
	}
	return program{}, fmt.Errorf("%s is no program that can be started", name)
}
