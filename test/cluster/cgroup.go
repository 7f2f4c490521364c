package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroup is the control group of all processes of a cluster: its programs below "system", and the pods of
// each node below the name of the node. Every process in it belongs to the cluster, even if it has outlived
// its parent.
type cgroup struct {
	name        string
	hierarchies []string // mount points of the hierarchies in use
	hybrid      string   // mount point of v2 beside v1: runc makes groups there too
	unified     bool     // cgroup v2 alone
}

func (c *cluster) cgroup() cgroup {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		mounts = nil
	}
	g := parseHierarchies(string(mounts))
	g.name = "afloat-" + c.name
	return g
}

// parseHierarchies finds the mount points of the v1 hierarchies, or of the v2 hierarchy if there are none of
// v1.
func parseHierarchies(mounts string) cgroup {
	var v1, v2 []string
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		switch {
		case len(f) < 3:
		case f[2] == "cgroup" && !slices.Contains(v1, f[1]):
			v1 = append(v1, f[1])
		case f[2] == "cgroup2" && !slices.Contains(v2, f[1]):
			v2 = append(v2, f[1])
		}
	}

	v2 = append(v2, "")
	if len(v1) > 0 {
		return cgroup{hierarchies: v1, hybrid: v2[0]}
	}

	return cgroup{hierarchies: v2[:1], unified: true}
}

// all returns the mount points below which groups may exist.
func (g cgroup) all() []string {
	if g.hybrid == "" {
		return g.hierarchies
	}
	return append(slices.Clone(g.hierarchies), g.hybrid)
}

// create creates the group, with one group below it for every node.
func (g cgroup) create(nodes []string) error {
	for _, h := range g.hierarchies {
		base := filepath.Join(h, g.name)
		for _, dir := range append([]string{base, filepath.Join(base, "system")}, under(base, nodes)...) {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make a control group: %w", err)
			}
			if err := inheritCPUs(dir); err != nil {
				return err
			}
			if g.unified && filepath.Base(dir) != "system" {
				if err := delegate(filepath.Dir(dir)); err != nil {
					return err
				}
			}
		}
	}

	return nil
}

func under(base string, names []string) []string {
	var dirs []string
	for _, n := range names {
		dirs = append(dirs, filepath.Join(base, n))
	}
	return dirs
}

// inheritCPUs copies the CPUs and memory nodes of the parent to a new v1 cpuset group. Without them, no
// process can enter it.
func inheritCPUs(dir string) error {
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil || strings.TrimSpace(string(own)) != "" {
			continue
		}
		parent, err := os.ReadFile(filepath.Join(filepath.Dir(dir), f))
		if err != nil || strings.TrimSpace(string(parent)) == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, f), parent, 0o644); err != nil {
			return fmt.Errorf("copy %s to %s: %w", f, dir, err)
		}
	}

	return nil
}

// delegate lets the children of a v2 group use all of its controllers.
func delegate(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers of %s: %w", dir, err)
	}
	for _, controller := range strings.Fields(string(b)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller),
			0o644); err != nil {
			return fmt.Errorf("delegate %s in %s: %w", controller, dir, err)
		}
	}
	return nil
}

// tracking returns the hierarchy that contains the cluster's own programs.
func (g cgroup) tracking() string {
	for _, h := range g.hierarchies {
		if filepath.Base(h) == "pids" {
			return h
		}
	}
	return g.hierarchies[0]
}

// adopt moves a process into the group. Its children follow.
func (g cgroup) adopt(pid int) error {
	return os.WriteFile(filepath.Join(g.tracking(), g.name, "system", "cgroup.procs"),
		[]byte(strconv.Itoa(pid)), 0o644)
}

// pids returns the processes in the group and below it.
func (g cgroup) pids() []int {
	var pids []int
	for _, h := range g.all() {
		filepath.WalkDir(filepath.Join(h, g.name),
			func(path string, d fs.DirEntry, err error) error { //nolint:errcheck // groups may vanish meanwhile
				if err != nil || d.Name() != "cgroup.procs" {
					return nil
				}
				b, _ := os.ReadFile(path)
				for _, f := range strings.Fields(string(b)) {
					if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
						pids = append(pids, pid)
					}
				}
				return nil
			})
	}

	slices.Sort(pids)
	return slices.Compact(pids)
}

// kill kills every process in the group, and waits until they are gone.
func (g cgroup) kill() error {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		pids := g.pids()
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v in control group %s do not end after SIGKILL", pids, g.name)
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended meanwhile
		}
	}
}

// remove deletes the group in every hierarchy. The kernel needs a moment after the last process has ended.
func (g cgroup) remove() error {
	for _, h := range g.all() {
		base := filepath.Join(h, g.name)
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err := removeGroups(base)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove control group: %w", err)
			}
		}
	}

	return nil
}

func removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}

	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}

	return syscall.Rmdir(dir)
}
