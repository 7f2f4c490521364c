package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type systemTool struct{ tool, pkg string }

// compilerTools are the tools for a build with C, with their Debian packages.
var compilerTools = []systemTool{{"gcc", "gcc"}, {"gcc", "libc6-dev"}, {"pkg-config", "pkg-config"}}

// systemTools are the tools that kubelet, kube-proxy and this program call, with their Debian packages.
var systemTools = []systemTool{
	{"iptables", "iptables"}, {"conntrack", "conntrack"}, {"ip", "iproute2"}, {"ethtool", "ethtool"},
	{"nsenter", "util-linux"}, {"unshare", "util-linux"}, {"mount", "mount"}, {"modprobe", "kmod"},
}

// ensureTools installs missing tools, which requires root.
func ensureTools(tools []systemTool, out *progress) error {
	var missing []string
	for _, t := range tools {
		if _, err := exec.LookPath(t.tool); err != nil && !slices.Contains(missing, t.pkg) {
			missing = append(missing, t.pkg)
		}
	}

	if len(missing) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("missing, and only root can install it: %s", strings.Join(missing, " "))
	}

	s := out.step("installing "+strings.Join(missing, " ")+" with apt-get", 15*time.Second)
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	err := aptGet("", install...)
	if err != nil {
		if err = aptGet("", "update"); err == nil {
			err = aptGet("", install...)
		}
	}

	return s.end(err)
}

func aptGet(dir string, args ...string) error {
	cmd := exec.Command("apt-get", append([]string{"-q"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	b, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(b)))
	}
	return nil
}

// debianPackage returns a folder with the unpacked package. It downloads the package into the cache once, and
// does not install it.
func debianPackage(pkg string, out *progress) (string, error) {
	cache, err := cacheRoot()
	if err != nil {
		return "", err
	}

	dir := filepath.Join(cache, "debian", pkg)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}

	unlock, err := lock(filepath.Dir(dir))
	if err != nil {
		return "", err
	}

	defer unlock()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}

	s := out.step("fetching the Debian package "+pkg, 3*time.Second)
	return dir, s.end(fetchPackage(pkg, dir))
}

func fetchPackage(pkg, dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".fetch-")
	if err != nil {
		return err
	}

	defer os.RemoveAll(tmp)
	if err := aptGet(tmp, "download", pkg); err != nil {
		if os.Geteuid() != 0 {
			return err
		}
		if err := aptGet(tmp, "update"); err != nil {
			return err
		}
		if err := aptGet(tmp, "download", pkg); err != nil {
			return err
		}
	}

	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %d files", pkg, len(debs))
	}

	root := filepath.Join(tmp, "root")
	if err := run("dpkg", "-x", debs[0], root); err != nil {
		return err
	}

	return os.Rename(root, dir)
}
