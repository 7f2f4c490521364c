//go:build integration

// Package rotation tests that the certificates of the webhooks change under load without a failed admission:
// two real managers behind one Service, on a real API server.
package rotation

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	manifests "github.com/afloat-project/afloat/config"
	"github.com/afloat-project/afloat/test/story"
)

const (
	namespace = "kruise-system"
	host      = "kruise-webhook-service.kruise-system.svc"
	patience  = 90 * time.Second
)

// world is an API server with two managers, which it calls through their Service.
type world struct {
	t    *testing.T
	kube client.Client
	// kubeconfig is for programs.
	kubeconfig string
	managers   []*manager
	admitted   atomic.Int64
	dialled    atomic.Int64
}

type manager struct {
	port, health int
	logs         bytes.Buffer
}

// start starts the API server with what the test puts there and the manifests, and then two managers with the
// flags, and waits until both are ready.
func start(t *testing.T, before func(w *world), objects func(t *testing.T) []*unstructured.Unstructured, flags ...string) *world {
	t.Helper()
	env := &envtest.Environment{}
	// With it the API server calls webhooks at the endpoints of their Service, since there is no network of
	// Services here.
	env.ControlPlane.GetAPIServer().Configure().Set("enable-aggregator-routing", "true")
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	w := &world{t: t}
	user, err := env.AddUser(envtest.User{Name: "manager", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	access, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	w.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(w.kubeconfig, access, 0o600); err != nil {
		t.Fatal(err)
	}
	if w.kube, err = story.NewClient(config); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(discoveryv1.AddToScheme(w.kube.Scheme()), admissionv1.AddToScheme(w.kube.Scheme())); err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	before(w)
	for _, object := range objects(t) {
		w.create(object)
	}
	binary := build(t, "../../..", "./cmd/manager")
	for i := range 2 {
		w.run(i, binary, flags)
	}
	for _, m := range w.managers {
		w.eventually("a manager's readiness", func() error {
			return answers(t.Context(), fmt.Sprintf("http://127.0.0.1:%d/readyz", m.health))
		})
	}
	w.eventually("the first admission", func() error { return errors.Join(w.admitCloneSet(), w.admitPod()) })
	return w
}

// run starts a manager and makes it an endpoint of the Service.
func (w *world) run(i int, binary string, flags []string) {
	w.t.Helper()
	m := &manager{port: w.freePort(), health: w.freePort()}
	dir := w.t.TempDir()
	process := exec.CommandContext(context.Background(), binary, append([]string{"--kubeconfig", w.kubeconfig, "--metrics-addr=127.0.0.1:0",
		fmt.Sprintf("--health-probe-addr=127.0.0.1:%d", m.health), "--enable-pprof=false", "--shutdown-delay-duration=0s",
		"--protection-log-path=" + dir, "--v=3"}, flags...)...)
	process.Env = append(os.Environ(), "POD_NAMESPACE="+namespace, "WEBHOOK_CERT_DIR="+filepath.Join(dir, "certs"),
		fmt.Sprintf("WEBHOOK_PORT=%d", m.port))
	w.begin(process, &m.logs)
	w.managers = append(w.managers, m)
	port, name, tcp, ready := int32(m.port), "webhook", corev1.ProtocolTCP, true
	w.create(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("manager-%d", i),
			Labels: map[string]string{discoveryv1.LabelServiceName: "kruise-webhook-service"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{w.address()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &tcp}},
	})
	// Before Kubernetes 1.33 the API server reads Endpoints.
	endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kruise-webhook-service"}} //nolint:staticcheck // see above
	if _, err := controllerutil.CreateOrUpdate(w.t.Context(), w.kube, endpoints, func() error {
		endpoints.Subsets = append(endpoints.Subsets, corev1.EndpointSubset{ //nolint:staticcheck // see above
			Addresses: []corev1.EndpointAddress{{IP: w.address()}},                     //nolint:staticcheck // see above
			Ports:     []corev1.EndpointPort{{Name: name, Port: port, Protocol: tcp}}}) //nolint:staticcheck // see above
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// begin starts a process that ends with the test; if that fails it shows the log.
func (w *world) begin(process *exec.Cmd, logs *bytes.Buffer) {
	w.t.Helper()
	process.Stdout, process.Stderr = logs, logs
	if err := process.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = process.Process.Signal(os.Interrupt)
		_ = process.Wait()
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", filepath.Base(process.Path), logs.String())
		}
	})
}

// build builds a program of a module.
func build(t *testing.T, module, program string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "-C", module, "build", "-o", binary, program).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", program, err, out)
	}
	return binary
}

// shipped are the definitions and the configurations of webhooks of a kustomization.
func shipped(folder string, kinds ...string) func(t *testing.T) []*unstructured.Unstructured {
	return func(t *testing.T) []*unstructured.Unstructured {
		t.Helper()
		rendered, err := manifests.Folder("../../../config/" + folder)
		if err != nil {
			t.Fatal(err)
		}
		var objects []*unstructured.Unstructured
		for _, text := range bytes.Split(rendered, []byte("\n---\n")) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(text, &object.Object); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(append(kinds, "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Service"), object.GetKind()) {
				objects = append(objects, object)
			}
		}
		if len(objects) < 10 {
			t.Fatalf("only %d objects", len(objects))
		}
		return objects
	}
}

// address is one of this machine that is not loopback, which endpoints may not be.
func (w *world) address() string {
	w.t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, one := range all {
		if network, ok := one.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() && !network.IP.IsLinkLocalUnicast() {
			return network.IP.String()
		}
	}
	w.t.Fatal("this machine has no address but loopback")
	return ""
}

func (w *world) freePort() int {
	w.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	if err := w.kube.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	var err error
	for begin := time.Now(); time.Since(begin) < patience; <-time.After(100 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	w.t.Fatalf("%s did not come within %s: %v", what, patience, err)
}

func answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}

// admitCloneSet has a CloneSet judged and completed, and converted, by a manager.
func (w *world) admitCloneSet() error {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet",
		"metadata": map[string]any{"generateName": "load-", "namespace": "default"},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "load"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "load"}},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "nginx:1.27"}}}}}}}
	if err := w.kube.Create(w.t.Context(), object, client.DryRunAll); err != nil {
		return fmt.Errorf("a CloneSet: %w", err)
	}
	if kind, _, _ := unstructured.NestedString(object.Object, "spec", "updateStrategy", "type"); kind == "" {
		return errors.New("a CloneSet passed without defaults")
	}
	return nil
}

// admitPod has a pod of a CloneSet completed by a manager.
func (w *world) admitPod() error {
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "load-", Namespace: "default", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "load", UID: "1", Controller: &yes}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1.27"}}}}
	if err := w.kube.Create(w.t.Context(), pod, client.DryRunAll); err != nil {
		return fmt.Errorf("a pod: %w", err)
	}
	if len(pod.Spec.ReadinessGates) == 0 {
		return errors.New("a pod passed without its readiness gate")
	}
	return nil
}

// dial shakes hands with a manager as an API server would that has no connection yet and trusts what the
// configuration says.
func (w *world) dial(m *manager) (*x509.Certificate, error) {
	hooks := &admissionv1.MutatingWebhookConfiguration{}
	if err := w.kube.Get(w.t.Context(), client.ObjectKey{Name: "kruise-mutating-webhook-configuration"}, hooks); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(hooks.Webhooks[0].ClientConfig.CABundle)
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(w.t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", m.port))
	if err != nil {
		return nil, fmt.Errorf("shaking hands with port %d: %w", m.port, err)
	}
	defer func() { _ = connection.Close() }()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// load admits without pause until the returned function is called, which fails the test if one admission
// failed.
func (w *world) load() (end func()) {
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(w.t.Context())
	again := func(count *atomic.Int64, what func() error) {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := what(); err != nil && ctx.Err() == nil {
					w.t.Errorf("after %d admissions and %d handshakes: %v", w.admitted.Load(), w.dialled.Load(), err)
					return
				}
				count.Add(1)
			}
		})
	}
	again(&w.admitted, w.admitCloneSet)
	again(&w.admitted, w.admitPod)
	for _, m := range w.managers {
		again(&w.dialled, func() error { _, err := w.dial(m); return err })
	}
	return func() {
		w.t.Helper()
		w.eventually("a load", func() error { // the machine may be slow
			if w.admitted.Load() < 100 || w.dialled.Load() < 100 {
				return errors.New("there were few")
			}
			return nil
		})
		stop()
		running.Wait()
		w.t.Logf("%d admissions, %d handshakes", w.admitted.Load(), w.dialled.Load())
	}
}

func (w *world) secret() *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	if err := w.kube.Get(w.t.Context(), client.ObjectKey{Namespace: namespace, Name: "kruise-webhook-certs"}, secret); err != nil {
		w.t.Fatal(err)
	}
	return secret
}

// signedBy tells whether the managers serve certificates that the authority signed.
func (w *world) signedBy(authority []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return errors.New("there is no authority")
	}
	for _, m := range w.managers {
		served, err := w.dial(m)
		if err != nil {
			return err
		}
		if _, err := served.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			return fmt.Errorf("port %d: %w", m.port, err)
		}
	}
	return nil
}
