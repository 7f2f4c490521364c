package cluster

import "testing"

func TestProgramsAreKnownByTheirCommandLine(t *testing.T) {
	const kubelet = "/cache/bin/kubelet\x00--config=/c/nodes/node1/kubelet.yaml\x00"
	for _, test := range []struct {
		line, program string
		want          bool
	}{
		{kubelet, "node1-kubelet", true},
		{kubelet, "node2-kubelet", false},
		{"/cache/bin/containerd-shim-runc-v2\x00-address\x00/c/nodes/node1/x\x00", "node1-containerd", false},
		{"/cache/bin/containerd\x00--config=/c/nodes/node1/containerd.toml\x00", "node1-containerd", true},
		{"/cache/bin/kube-apiserver\x00--x\x00", "kube-apiserver", true},
		{"", "node1-kubelet", false},
	} {
		if got := named([]byte(test.line), test.program); got != test.want {
			t.Errorf("%q is %s: %t", test.line, test.program, got)
		}
	}
}

func TestTheMainProcessOfAContainerIsTheFirstOfItsNamespace(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\tapp\nNSpid:\t4711\t1\n": true, "NSpid:\t4711\t12\n": false, "NSpid:\t1\n": false, "": false,
	} {
		if got := first([]byte(status)); got != want {
			t.Errorf("%q: %t", status, got)
		}
	}
}
