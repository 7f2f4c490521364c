//go:build integration

// Package integration tests the manager against a real API server: webhooks, conversion, and the requests
// that create pods. There is no kubelet. KUBEBUILDER_ASSETS names the folder with etcd and kube-apiserver.
package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/test/story"
)

// patience is how long a test waits for what should happen at once.
const patience = time.Minute

var (
	kube      client.Client
	apiServer *rest.Config
	// sent has the bodies of the manager's requests that create pods.
	sent = &recorded{}
	// writes has method and path of all write requests of the manager.
	writes = &recorded{}
	// reads has the paths of what the manager reads of a kind that only tests have.
	reads = &recorded{}
	// spans are what the manager traces.
	spans *collector
	// metricsAddress is where the manager's metrics are.
	metricsAddress string
	// protectionLog is the folder of the manager's protection log.
	protectionLog string
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	env := &envtest.Environment{}
	dir, err := os.MkdirTemp("", "callers")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	callers, err := showCertificate(env, dir)
	if err != nil {
		return 0, err
	}
	config, err := env.Start()
	if err != nil {
		return 0, fmt.Errorf("starting the API server: %w", err)
	}
	defer func() {
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}()
	apiServer = config
	if kube, err = story.NewClient(config); err != nil {
		return 0, err
	}
	if err := appsv1alpha1.AddToScheme(kube.Scheme()); err != nil {
		return 0, err
	}
	// Envtest is not used for this, because it removes the conversion webhook.
	definitions, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil {
		return 0, err
	}
	for _, definition := range definitions {
		if err := create(definition); err != nil {
			return 0, err
		}
	}
	if err := wait(func() error { return kube.List(context.Background(), &appsv1beta1.CloneSetList{}) }); err != nil {
		return 0, fmt.Errorf("the CRD is not served: %w", err)
	}
	if err := createLegacies(context.Background()); err != nil {
		return 0, err
	}
	if err := createSidecarLegacy(context.Background()); err != nil {
		return 0, fmt.Errorf("fixture of SidecarSets: %w", err)
	}
	stop, err := startManager(config, callers)
	if err != nil {
		return 0, err
	}
	defer stop()
	return m.Run(), nil
}

// startManager runs the real binary outside the cluster, with its certificates in files (OPS-021, OPS-048),
// behind a proxy that records what it sends.
func startManager(config *rest.Config, callers string) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "manager")
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(dir, "manager")
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", binary, "../../cmd/manager").
		CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the manager: %w: %s", err, out)
	}
	proxy, err := recordingProxy(config)
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(fmt.Sprintf(`{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`, proxy.URL)), 0o600); err != nil {
		return nil, err
	}
	for _, name := range []string{"mutating", "validating"} {
		if err := create("../../config/webhook/" + name + ".yaml"); err != nil {
			return nil, err
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	managerAddress = fmt.Sprintf("127.0.0.1:%d", port)
	metricsPort, err := freePort()
	if err != nil {
		return nil, err
	}
	metricsAddress = fmt.Sprintf("127.0.0.1:%d", metricsPort)
	logs := &bytes.Buffer{}
	if spans, err = collect(); err != nil {
		return nil, err
	}
	manager := exec.CommandContext(context.Background(), binary, "--kubeconfig", kubeconfig, "--enable-leader-election=false",
		"--metrics-addr="+metricsAddress, "--health-probe-addr=127.0.0.1:0", "--enable-pprof=false", "--shutdown-delay-duration=0s",
		"--tracing-endpoint="+spans.url, "--tracing-sampling-rate-per-million=1000000",
		"--webhook-client-ca-file="+callers, "--feature-gates=DeletionProtectionForCRDCascadingGate=true,PodUnavailableBudgetUpdateGate=true,ResourceDistributionGate=true", "--protection-log-path="+dir)
	protectionLog = dir
	manager.Env = append(os.Environ(), "WEBHOOK_HOST=127.0.0.1", "WEBHOOK_CERT_WRITER=fs", "WEBHOOK_CERT_DIR="+filepath.Join(dir, "certs"),
		fmt.Sprintf("WEBHOOK_PORT=%d", port))
	manager.Stdout, manager.Stderr = logs, logs
	if err := manager.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = manager.Process.Signal(os.Interrupt)
		_ = manager.Wait()
		proxy.Close()
		spans.server.Stop()
		_ = os.RemoveAll(dir)
	}
	probe := cloneSet("v1alpha1", "probe", "")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	err = wait(func() error {
		return errors.Join(kube.Create(context.Background(), probe.DeepCopy(), client.DryRunAll),
			kube.Create(context.Background(), pod.DeepCopy(), client.DryRunAll))
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("the webhooks do not answer: %w\n%s", err, logs)
	}
	return stop, nil
}

func create(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &object.Object); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return kube.Create(context.Background(), object)
}

func freePort() (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// recorded has texts of requests.
type recorded struct {
	mu     sync.Mutex
	bodies []string
}

func (r *recorded) add(body string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies = append(r.bodies, body)
}

// with returns the bodies that contain the text.
func (r *recorded) with(text string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, body := range r.bodies {
		if strings.Contains(body, text) {
			found = append(found, body)
		}
	}
	return found
}

func recordingProxy(config *rest.Config) (*httptest.Server, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/integration.example.com/") {
			reads.add(r.URL.Path)
		}
		if r.Method != http.MethodGet {
			writes.add(r.Method + " " + r.URL.Path)
		}
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			sent.add(string(body))
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		proxy.ServeHTTP(w, r)
	})), nil
}

// wait repeats the check until it succeeds.
func wait(check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", patience, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// cloneSet returns a CloneSet in the version, merged with a manifest in YAML.
func cloneSet(version, name, over string) *unstructured.Unstructured {
	strategy := `{type: ReCreate}`
	if version == "v1beta1" {
		strategy = `{type: RollingUpdate, rollingUpdate: {podUpdatePolicy: ReCreate}}`
	}
	base := fmt.Sprintf(`
apiVersion: apps.kruise.io/%s
kind: CloneSet
metadata: {name: %s, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec: {containers: [{name: nginx, image: "nginx:1.26"}]}
  updateStrategy: %s
`, version, name, name, name, strategy)
	object, extra := map[string]any{}, map[string]any{}
	if err := errors.Join(yaml.Unmarshal([]byte(base), &object), yaml.Unmarshal([]byte(over), &extra)); err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: mergeInto(object, extra)}
}

func mergeInto(a, b map[string]any) map[string]any {
	for key, value := range b {
		old, isMap := a[key].(map[string]any)
		next, ok := value.(map[string]any)
		switch {
		case ok && isMap:
			a[key] = mergeInto(old, next)
		case value == nil:
			delete(a, key)
		default:
			a[key] = value
		}
	}
	return a
}

// pods returns the pods of a set.
func pods(t *testing.T, name string) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := kube.List(t.Context(), &list, client.InNamespace("default"), client.MatchingLabels{"app": name}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// names tells whether fields has the field or one below it.
func names(fields map[string]string, field string) bool {
	for name := range fields {
		if name == field || strings.HasPrefix(name, field+".") || strings.HasPrefix(name, field+"[") {
			return true
		}
	}
	return false
}

// fieldsOf returns the fields that a refusal names.
func fieldsOf(t *testing.T, err error) map[string]string {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("the answer is %v, not 422 Invalid", err)
	}
	var status apierrors.APIStatus
	errors.As(err, &status)
	fields := map[string]string{}
	for _, cause := range status.Status().Details.Causes {
		fields[strings.TrimPrefix(cause.Field, ".")] = cause.Message
	}
	if code := status.Status().Code; code != http.StatusUnprocessableEntity {
		t.Errorf("code: got %d, want 422: %v", code, err)
	}
	if reason := status.Status().Reason; reason != metav1.StatusReasonInvalid {
		t.Errorf("reason: got %s, want Invalid: %v", reason, err)
	}
	return fields
}
