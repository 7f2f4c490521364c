// Package cluster controls the programs of a local cluster, runs managers beside it, and follows its etcd.
package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// NodeImages are the lists of images of nodes.
var NodeImages = schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1beta1", Resource: "nodeimages"}

// agent is the user agent of the test itself.
const agent = "afloat-robustness"

// Cluster is a local cluster that runs. This process is in its network.
type Cluster struct {
	// Config reaches the API server without any proxy.
	Config *rest.Config
	// Kube and Dynamic use Config.
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface

	tool, dir string
}

// Open finds the cluster of a kubeconfig. The tool is the command that manages local clusters.
func Open(kubeconfig, tool string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.UserAgent, config.Timeout = -1, agent, 20*time.Second

	c := &Cluster{Config: config, tool: tool, dir: filepath.Dir(kubeconfig)}
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}

	return c, nil
}

// Server returns the URL of the API server.
func (c *Cluster) Server() string { return c.Config.Host }

// AuditLog returns the path of the audit log.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "logs", "audit.log") }

func (c *Cluster) pki(file string) string { return filepath.Join(c.dir, "pki", file) }

// AuthorityFile returns the path of the certificate that has signed those of the cluster.
func (c *Cluster) AuthorityFile() string { return c.pki("ca.crt") }

// Authorities returns who signs the certificates of the cluster.
func (c *Cluster) Authorities() (*x509.CertPool, error) {
	pem, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("the cluster's authority has no certificate")
	}
	return pool, nil
}

// Certificate returns a certificate for loopback that the cluster's authority has signed.
func (c *Cluster) Certificate() (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.pki("etcd.crt"), c.pki("etcd.key"))
	if err != nil {
		return pair, fmt.Errorf("reading a certificate for loopback: %w", err)
	}
	return pair, nil
}

// pid returns the process of a program of the cluster.
func (c *Cluster) pid(program string) (int, error) {
	data, err := os.ReadFile(filepath.Join(c.dir, "pids", program+".json"))
	if err != nil {
		return 0, fmt.Errorf("finding %s: %w", program, err)
	}
	var process struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(data, &process); err != nil {
		return 0, fmt.Errorf("finding %s: %w", program, err)
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", process.PID))
	if err != nil || !named(name, program) {
		return 0, fmt.Errorf("%s does not run", program)
	}
	return process.PID, nil
}

// Signal sends a signal to a program of the cluster, such as kube-apiserver.
func (c *Cluster) Signal(program string, signal syscall.Signal) error {
	pid, err := c.pid(program)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil {
		return fmt.Errorf("sending %s to %s: %w", signal, program, err)
	}
	return nil
}

// Gone waits until a program that was killed has ended.
func (c *Cluster) Gone(ctx context.Context, program string) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) {
			_, err := c.pid(program)
			return err != nil, nil
		})
	if err != nil {
		return fmt.Errorf("waiting for the end of %s: %w", program, err)
	}
	return nil
}

// Start starts a program of the cluster that has ended.
func (c *Cluster) Start(ctx context.Context, program string) error {
	out, err := exec.CommandContext(ctx, c.tool, "start", program).CombinedOutput()
	if err != nil {
		return fmt.Errorf("starting %s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	return nil
}

// Repair starts every program of the cluster that does not run.
func (c *Cluster) Repair(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, c.tool, "up").CombinedOutput()
	if err != nil {
		return fmt.Errorf("repairing the cluster: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Ready waits until the API server is ready.
func (c *Cluster) Ready(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 90*time.Second, true,
		func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			code := 0
			c.Kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&code)
			return code == http.StatusOK, nil
		})
	if err != nil {
		return fmt.Errorf("waiting for the API server: %w", err)
	}
	return nil
}
