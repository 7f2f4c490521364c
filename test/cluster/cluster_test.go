package main

import (
	"slices"
	"testing"
)

func TestUpAsksForWhatIsThere(t *testing.T) {
	two, five, version := 2, 5, "v1.35.4"
	running := spec{Version: defaultVersion, Nodes: 2, Root: true}
	for name, tc := range map[string]struct {
		request request
		have    spec
		root    bool
		want    spec
		wantErr bool
	}{
		"defaults with root":    {root: true, want: spec{Version: defaultVersion, Nodes: 2, Root: true}},
		"defaults without root": {want: spec{Version: defaultVersion, Simulated: 20}},
		"real nodes need root":  {request: request{nodes: &two}, wantErr: true},
		"version and nodes": {request: request{nodes: &five, version: &version}, root: true,
			want: spec{Version: version, Nodes: 5, Root: true}},
		"nothing said about it":      {have: running, root: true, want: running},
		"the same said about it":     {have: running, root: true, request: request{nodes: &two}, want: running},
		"another number of nodes":    {have: running, root: true, request: request{nodes: &five}, wantErr: true},
		"another Kubernetes version": {have: running, root: true, request: request{version: &version}, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{name: "t", spec: tc.have}
			err := tc.request.settle(c, tc.root)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error = %v", err)
			}
			if got := c.spec; err == nil && (got.Version != tc.want.Version || got.Nodes != tc.want.Nodes ||
				got.Simulated != tc.want.Simulated) {
				t.Errorf("spec = %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestControlGroupsAreFoundInEveryKindOfSystem(t *testing.T) {
	const v1 = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup /sys/fs/cgroup/pids cgroup rw 0 0\n"
	const hybrid = v1 + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
	for name, tc := range map[string]struct {
		mounts  string
		unified bool
		all     []string
	}{
		"v1":     {v1, false, []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/pids"}},
		"hybrid": {hybrid, false, []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"}},
		"v2":     {"cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", true, []string{"/sys/fs/cgroup"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := parseHierarchies(tc.mounts)
			if g.unified != tc.unified || !slices.Equal(g.all(), tc.all) {
				t.Errorf("got %+v", g)
			}
		})
	}
}

func TestOnlyMountsBelowTheClusterAreUnmounted(t *testing.T) {
	const info = `20 1 254:0 / / rw - ext4 /dev/vda rw
21 20 0:5 / /var/lib/afloat-cluster/a/x rw - tmpfs tmpfs rw
22 20 0:6 / /var/lib/afloat-cluster/ab/y rw - tmpfs tmpfs rw
23 21 0:7 / /var/lib/afloat-cluster/a/x/with\040space rw - tmpfs tmpfs rw
`
	got := mountsBelow(info, "/var/lib/afloat-cluster/a")
	want := []string{"/var/lib/afloat-cluster/a/x", "/var/lib/afloat-cluster/a/x/with space"}
	if !slices.Equal(got, want) {
		t.Errorf("mounts = %q, want %q", got, want)
	}
}
