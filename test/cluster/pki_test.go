package main

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

func readCertificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	der, err := readPEM(path)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestNodeCertificateIsWhatTheNodeAuthorizerAsksFor(t *testing.T) {
	dir := t.TempDir()
	c := &cluster{name: "t", dir: dir, spec: spec{Version: defaultVersion, Nodes: 2, Root: true}}
	if err := c.choosePorts(); err != nil {
		t.Fatal(err)
	}
	if err := c.ensurePKI(); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(readCertificate(t, c.pki("ca.crt")))
	verify := func(file, host string, usage x509.ExtKeyUsage) *x509.Certificate {
		t.Helper()
		cert := readCertificate(t, c.pki(file))
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("%s for %q: %v", file, host, err)
		}
		return cert
	}
	node := verify("node2.crt", "", x509.ExtKeyUsageClientAuth)
	if got := node.Subject.CommonName; got != "system:node:node2" {
		t.Errorf("user = %q", got)
	}
	if got := node.Subject.Organization; len(got) != 1 || got[0] != "system:nodes" {
		t.Errorf("groups = %q", got)
	}
	for _, host := range []string{"10.244.0.1", "10.96.0.1", "127.0.0.1", "kubernetes.default.svc"} {
		verify("kube-apiserver.crt", host, x509.ExtKeyUsageServerAuth)
	}
	verify("node1-server.crt", "10.244.0.11", x509.ExtKeyUsageServerAuth)
}

func TestCertificatesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	c := &cluster{name: "t", dir: dir, spec: spec{Version: defaultVersion, Nodes: 1, Root: true}}
	read := func() string {
		if err := c.ensurePKI(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if first, second := read(), read(); first != second {
		t.Error("the kubeconfig changed")
	}
}
