package main

import (
	"fmt"
	"path/filepath"
)

// etcd keeps its data in the cluster's folder. It does not sync it to disk, because a test cluster does not
// survive a reboot anyway.
func (c *cluster) etcd() program {
	p := c.spec.Ports
	client, peer := fmt.Sprintf("https://127.0.0.1:%d", p.Etcd),
		fmt.Sprintf("http://127.0.0.1:%d", p.EtcdPeer)
	return program{name: "etcd", path: c.bin["etcd"], args: []string{
		"--data-dir=" + filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--quota-backend-bytes=8589934592",
		"--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--cert-file=" + c.pki("etcd.crt"), "--key-file=" + c.pki("etcd.key"),
		"--trusted-ca-file=" + c.pki("ca.crt"), "--client-cert-auth",
	}}
}
