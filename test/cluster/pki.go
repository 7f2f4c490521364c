package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// authority signs the certificates of a cluster.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	dir  string
}

// identity describes the purpose of a certificate: a client (user and group), a server (addresses), or both.
type identity struct {
	file   string // name of the files, without .crt and .key
	user   string
	group  string
	server []string // names and addresses; none for a pure client
}

const certificateLife = 10 * 365 * 24 * time.Hour

func (c *cluster) pki(file string) string { return filepath.Join(c.dir, "pki", file) }

// ensurePKI creates missing authorities, certificates and keys, and writes the kubeconfig files.
func (c *cluster) ensurePKI() error {
	ca, err := loadAuthority(c.pki(""), "ca")
	if err != nil {
		return err
	}

	front, err := loadAuthority(c.pki(""), "front-proxy-ca")
	if err != nil {
		return err
	}
	if err := front.issue(identity{file: "front-proxy-client", user: "front-proxy-client"}); err != nil {
		return err
	}
	if err := newKeyPair(c.pki("sa")); err != nil {
		return err
	}

	local := []string{"localhost", "127.0.0.1"}
	var nodes []string // a test may put what it likes between a node and the API server
	for i := range c.nodeNames() {
		nodes = append(nodes, c.nodeAddress(i+1))
	}
	ids := []identity{
		{file: "etcd", user: "etcd", server: local},
		{file: "etcd-client", user: "kube-apiserver-etcd-client"},
		{file: "kube-apiserver", user: "kube-apiserver",
			server: slices.Concat(local, nodes, []string{c.address(), c.serviceAddress(1), "kubernetes", "kubernetes.default",
				"kubernetes.default.svc", "kubernetes.default.svc.cluster.local"})},
		{file: "kubelet-client", user: "kube-apiserver-kubelet-client", group: "system:masters"},
	}
	for i, node := range c.nodeNames() {
		ids = append(ids, identity{file: node + "-server", user: "system:node:" + node, group: "system:nodes",
			server: []string{node, c.nodeAddress(i + 1)}})
	}

	users := []identity{
		{file: "admin", user: "kubernetes-admin", group: "system:masters"},
		{file: "kube-controller-manager", user: "system:kube-controller-manager"},
		{file: "kube-scheduler", user: "system:kube-scheduler"},
		{file: "kube-proxy", user: "system:kube-proxy"},
		{file: "kwok", user: "kwok", group: "system:masters"},
		{file: "csi-provisioner", user: "csi-provisioner"},
		{file: "csi-resizer", user: "csi-resizer"},
	}
	for _, node := range c.nodeNames() {
		users = append(users, identity{file: node, user: "system:node:" + node, group: "system:nodes"})
	}

	for _, id := range append(ids, users...) {
		if err := ca.issue(id); err != nil {
			return fmt.Errorf("certificate for %s: %w", id.file, err)
		}
	}

	for _, id := range users {
		path := c.pki(id.file + ".kubeconfig")
		if id.file == "admin" {
			path = c.kubeconfig()
		}
		if err := c.writeKubeconfig(path, id); err != nil {
			return err
		}
	}

	return nil
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(path, "EC PRIVATE KEY", der, 0o600)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}

func readPEM(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", path)
	}
	return block.Bytes, nil
}

// newKeyPair creates path.key and path.pub unless they exist.
func newKeyPair(path string) error {
	if _, err := os.Stat(path + ".pub"); err == nil {
		return nil
	}
	key, err := newKey(path + ".key")
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	return writePEM(path+".pub", "PUBLIC KEY", der, 0o644)
}

// loadAuthority reads the authority of the given name from dir, or creates it.
func loadAuthority(dir, name string) (*authority, error) {
	certPath, keyPath := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if der, err := readPEM(certPath); err == nil {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", certPath, err)
		}
		der, err = readPEM(keyPath)
		if err != nil {
			return nil, err
		}
		key, err := x509.ParseECPrivateKey(der)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", keyPath, err)
		}
		return &authority{cert: cert, key: key, dir: dir}, nil
	}

	key, err := newKey(keyPath)
	if err != nil {
		return nil, err
	}

	template := newTemplate(name)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}

	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}

	return &authority{cert: cert, key: key, dir: dir}, writePEM(certPath, "CERTIFICATE", der, 0o644)
}

func newTemplate(user string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // crypto/rand never fails on Linux
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: user},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(certificateLife),
	}
}

// issue writes the certificate and key of id unless they exist.
func (a *authority) issue(id identity) error {
	certPath := filepath.Join(a.dir, id.file+".crt")
	if _, err := os.Stat(certPath); err == nil {
		return nil
	}

	key, err := newKey(filepath.Join(a.dir, id.file+".key"))
	if err != nil {
		return err
	}

	template := newTemplate(id.user)
	if id.group != "" {
		template.Subject.Organization = []string{id.group}
	}

	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(id.server) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}

	for _, s := range id.server {
		if ip := net.ParseIP(s); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, s)
		}
	}

	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}

	return writePEM(certPath, "CERTIFICATE", der, 0o644)
}

func (c *cluster) writeKubeconfig(path string, id identity) error {
	var data [3]string
	for i, f := range []string{"ca.crt", id.file + ".crt", id.file + ".key"} {
		b, err := os.ReadFile(c.pki(f))
		if err != nil {
			return err
		}
		data[i] = base64.StdEncoding.EncodeToString(b)
	}
	return writeFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster: {server: %[2]q, certificate-authority-data: %[3]s}
users:
- name: %[4]q
  user: {client-certificate-data: %[5]s, client-key-data: %[6]s}
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[4]q}
current-context: %[1]s
`, c.name, c.server(), data[0], id.user, data[1], data[2]), 0o600)
}
