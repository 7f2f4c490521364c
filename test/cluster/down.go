package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// down stops the cluster and removes all that it created. It works from records, so it also works after an
// `up` that failed half-way or after the programs were killed.
func (c *cluster) down() error {
	root := os.Geteuid() == 0
	if _, err := os.Stat(c.dir); errors.Is(err, fs.ErrNotExist) && (!root || len(c.cgroup().pids()) == 0) {
		c.out.say("cluster %s is not there", c.name)
		return nil
	}

	unlock, err := c.lockOne()
	if err != nil {
		return err
	}

	defer unlock()
	again, err := openCluster(c.name, c.out) // it may have changed while waiting for the lock
	if err != nil {
		return err
	}

	c.spec = again.spec
	s := c.out.step("taking cluster "+c.name+" down", 2*time.Second)
	return s.end(c.remove(root))
}

func (c *cluster) remove(root bool) error {
	if err := c.stopRecorded(); err != nil {
		return err
	}

	if root {
		if err := c.cgroup().kill(); err != nil {
			return err
		}
		if c.exists() {
			if err := c.deleteLink(); err != nil {
				return err
			}
		}
		if err := c.cgroup().remove(); err != nil {
			return err
		}
		if err := unmountBelow(c.dir); err != nil {
			return err
		}
	}

	unlock, err := c.lockAll()
	if err != nil {
		return err
	}

	defer unlock()
	if err := c.removeMountPoints(); err != nil {
		return err
	}
	if err := removeAll(c.dir); err != nil {
		return fmt.Errorf("remove %s: %w", c.dir, err)
	}

	os.Remove(filepath.Dir(c.dir)) //nolint:errcheck // only if it was the last cluster
	return nil
}

// removeAll removes a folder. Another namespace may need a moment to release its mounts.
func removeAll(dir string) error {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := os.RemoveAll(dir)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// unmountBelow detaches every mount of the machine below dir. A cluster mounts only in its own namespace, so
// there are none unless somebody else has mounted something, but a folder must never be removed through a
// mount.
func unmountBelow(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	points := mountsBelow(string(b), dir)
	for _, p := range slices.Backward(points) {
		if err := syscall.Unmount(p, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) &&
			!errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return nil
}

// mountsBelow returns the mount points below dir, in the order of mounting.
func mountsBelow(mountinfo, dir string) []string {
	var points []string
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		if p := unescape.Replace(f[4]); strings.HasPrefix(p, dir+"/") {
			points = append(points, p)
		}
	}
	return points
}
