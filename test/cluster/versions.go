package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// kubernetesVersions are the Kubernetes versions that the project supports, oldest first. Each has a nested
// module kubernetes/v1.N.
var kubernetesVersions = []string{"v1.32.13", "v1.33.13", "v1.34.4", "v1.35.4", "v1.36.3", "v1.37.1"}

const (
	defaultVersion    = "v1.36.3"
	etcdVersion       = "v3.7.3"
	containerdVersion = "v2.4.2"
	runcVersion       = "v1.5.2"
	cniVersion        = "v1.9.1"
	kwokVersion       = "v0.8.0"
	// Newer versions of the provisioner need a module that the public module mirror does not serve.
	provisionerVersion = "v6.3.0"
	resizerVersion     = "v2.3.0"
)

// checkVersion returns an error that lists the known versions unless v is one of them.
func checkVersion(v string) error {
	if slices.Contains(kubernetesVersions, v) {
		return nil
	}
	return fmt.Errorf("K8S_VERSION=%s is not one of %s", v, strings.Join(kubernetesVersions, " "))
}

// minor returns "v1.36" for "v1.36.3".
func minor(version string) string { return version[:strings.LastIndex(version, ".")] }

// component is what a nested module builds: one or more static binaries of one version.
type component struct {
	name     string
	version  string
	module   string            // folder below the source, with go.mod and go.sum
	packages map[string]string // binary -> package
	links    []string          // more names of the only binary
	requires string            // path of the module whose version the nested go.mod must require
	ldflags  string
	tags     string
	cgo      bool
	library  string        // Debian package with a static C library to link
	expected time.Duration // a cold build on two cores
}

// binaries returns the names of the files in the component's cache folder.
func (c component) binaries() []string {
	names := slices.Clone(c.links)
	for b := range c.packages {
		names = append(names, b)
	}
	slices.Sort(names)
	return names
}

// kubernetesPrograms are the names by which the single Kubernetes binary is called.
var kubernetesPrograms = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy",
	"kubelet", "kubectl"}

func kubernetesComponent(version string) component {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, "-X "+pkg+".gitVersion="+version, "-X "+pkg+".gitMajor="+parts[0],
			"-X "+pkg+".gitMinor="+parts[1], "-X "+pkg+".gitTreeState=clean")
	}
	return component{
		name: "kubernetes", version: version, module: filepath.Join("kubernetes", minor(version)),
		requires: "k8s.io/kubernetes",
		packages: map[string]string{"kubernetes": "."}, links: kubernetesPrograms,
		ldflags: strings.Join(flags, " "), tags: "kubernetes", expected: 330 * time.Second,
	}
}

// components returns all components that a cluster of the given Kubernetes version may need.
func components(version string) []component {
	return []component{
		{
			name: "etcd", version: etcdVersion, module: "etcd", requires: "go.etcd.io/etcd/server/v3",
			packages: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"}, expected: time.Minute,
		},
		kubernetesComponent(version),
		{
			name: "containerd", version: containerdVersion, module: "containerd",
			requires: "github.com/containerd/containerd/v2",
			packages: map[string]string{
				"containerd":              "github.com/containerd/containerd/v2/cmd/containerd",
				"containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
				"ctr":                     "github.com/containerd/containerd/v2/cmd/ctr",
			},
			ldflags: "-X github.com/containerd/containerd/v2/version.Version=" + containerdVersion,
			tags:    "no_btrfs,no_devmapper,no_zfs", expected: time.Minute,
		},
		{
			name: "runc", version: runcVersion, module: "runc", requires: "github.com/opencontainers/runc",
			packages: map[string]string{"runc": "github.com/opencontainers/runc"},
			ldflags:  "-X main.version=" + strings.TrimPrefix(runcVersion, "v") + " -extldflags -static",
			tags:     "netgo,osusergo,seccomp", cgo: true, library: "libseccomp-dev",
			expected: 10 * time.Second,
		},
		{
			name: "cni", version: cniVersion, module: "cni",
			requires: "github.com/containernetworking/plugins",
			packages: map[string]string{
				"ptp":        "github.com/containernetworking/plugins/plugins/main/ptp",
				"loopback":   "github.com/containernetworking/plugins/plugins/main/loopback",
				"host-local": "github.com/containernetworking/plugins/plugins/ipam/host-local",
				"portmap":    "github.com/containernetworking/plugins/plugins/meta/portmap",
			},
			expected: 10 * time.Second,
		},
		{
			name: "kwok", version: kwokVersion, module: "kwok", requires: "sigs.k8s.io/kwok",
			packages: map[string]string{"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
			ldflags:  "-X sigs.k8s.io/kwok/pkg/consts.Version=" + kwokVersion, expected: 75 * time.Second,
		},
		{
			name: "pause", version: "v1-" + runtime.GOARCH, module: "pause",
			packages: map[string]string{"pause": "."}, expected: 2 * time.Second,
		},
		{
			name: "csi-driver", version: "v1-" + runtime.GOARCH, module: "csi",
			packages: map[string]string{"csi-driver": "."}, expected: 30 * time.Second,
		},
		{
			name: "csi-provisioner", version: provisionerVersion, module: "csi",
			requires: "github.com/kubernetes-csi/external-provisioner/v6",
			packages: map[string]string{"csi-provisioner": "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"},
			expected: 2 * time.Minute,
		},
		{
			name: "csi-resizer", version: resizerVersion, module: "csi",
			requires: "github.com/kubernetes-csi/external-resizer/v2",
			packages: map[string]string{"csi-resizer": "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer"},
			expected: 15 * time.Second,
		},
	}
}
