package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/afloat-project/afloat/test/robustness/proxy"
	"github.com/afloat-project/afloat/test/robustness/record"
)

// Namespace is where Afloat is installed.
const Namespace = "kruise-system"

// clockVariable is read by managers that are built with a shifted clock; see clock.go.
const clockVariable = "AFLOAT_ROBUSTNESS_CLOCK"

// Manager is one of the managers. Its process may be killed and started again; its proxy stays.
type Manager struct {
	Name  string
	Proxy *proxy.Proxy
	// Port is where its webhooks are served, Health where its checks are, and Metrics where its metrics are.
	Port, Health, Metrics int

	binary, dir, kubeconfig string
	log                     *os.File

	mutex   sync.Mutex
	process *os.Process
	ended   chan struct{}
	number  int
}

// NewManager prepares a manager with the rights that the manifests give it. Its folder has its kubeconfig,
// its certificates and its log.
func (c *Cluster) NewManager(
	ctx context.Context, name, binary, dir string, p *proxy.Proxy, port, health, metrics int,
) (*Manager, error) {
	if err := os.MkdirAll(filepath.Join(dir, "protection"), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of a manager: %w", err)
	}
	day := int64(24 * 60 * 60)
	token, err := c.Kube.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, "kruise-manager",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking for a token of the manager: %w", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.URL(), CertificateAuthority: c.pki("ca.crt")}
	config.AuthInfos["manager"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy", AuthInfo: "manager"}
	config.CurrentContext = "proxy"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, fmt.Errorf("writing the kubeconfig of a manager: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("making the log of a manager: %w", err)
	}

	return &Manager{Name: name, Proxy: p, Port: port, Health: health, Metrics: metrics, binary: binary, dir: dir,
		kubeconfig: kubeconfig, log: log}, nil
}

// Start starts a process, whose clock differs from that of the machine if the manager was built for it.
func (m *Manager) Start(shift time.Duration) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.number++
	m.Proxy.SetManager(m.id())

	command := exec.Command(m.binary, //nolint:noctx // signals end it
		"--kubeconfig="+m.kubeconfig, fmt.Sprintf("--metrics-addr=127.0.0.1:%d", m.Metrics),
		fmt.Sprintf("--health-probe-addr=127.0.0.1:%d", m.Health),
		"--protection-log-path="+filepath.Join(m.dir, "protection"), "--shutdown-delay-duration=1s", "--v=3",
		"--feature-gates=PodUnavailableBudgetUpdateGate=true,ResourceDistributionGate=true")
	command.Env = append(os.Environ(), fmt.Sprintf("WEBHOOK_PORT=%d", m.Port), "GOMEMLIMIT=900MiB",
		"WEBHOOK_CERT_DIR="+filepath.Join(m.dir, "certificates"), clockVariable+"="+shift.String())
	command.Stdout, command.Stderr = m.log, m.log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the process ends with the thread that has started it
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // how it ended does not matter: it is started again
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("starting manager %s: %w", m.Name, err)
	}
	m.process, m.ended = command.Process, ended

	return nil
}

// id returns the name of the process in records, such as a.2.
func (m *Manager) id() string { return fmt.Sprintf("%s.%d", m.Name, m.number) }

// Signal sends a signal to the process.
func (m *Manager) Signal(signal syscall.Signal) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if err := m.process.Signal(signal); err != nil {
		return fmt.Errorf("sending %s to manager %s: %w", signal, m.Name, err)
	}
	return nil
}

// Ended returns a channel that is closed when the process ends.
func (m *Manager) Ended() <-chan struct{} {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.ended
}

// Stop ends the process, at once or by asking, and waits for its end.
func (m *Manager) Stop(ctx context.Context, signal syscall.Signal) error {
	if err := m.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-m.Ended():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("manager %s does not end: %w", m.Name, context.Cause(ctx))
	}
}

// Kill ends the process at once, if it was started.
func (m *Manager) Kill(ctx context.Context) error { return m.Stop(ctx, syscall.SIGKILL) }

// IsReady asks the process whether its webhooks serve, as a kubelet would.
func (m *Manager) IsReady(ctx context.Context) bool {
	body, err := get(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", m.Health))
	return err == nil && body.Close() == nil
}

// get asks for a page, and returns its body, which the caller closes.
func get(ctx context.Context, path string) (io.ReadCloser, error) {
	client := http.Client{Timeout: 3 * time.Second}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("asking for %s: %s", path, response.Status), response.Body.Close())
	}
	return response.Body, nil
}

// Sample reads what the process takes from its metrics.
func (m *Manager) Sample(ctx context.Context) (*record.Sample, error) {
	m.mutex.Lock()
	id := m.id()
	m.mutex.Unlock()
	return sample(ctx, id, fmt.Sprintf("http://127.0.0.1:%d", m.Metrics))
}

// sample reads what a process takes from its metrics.
func sample(ctx context.Context, of, address string) (*record.Sample, error) {
	s := &record.Sample{Manager: of, Time: time.Now()}
	body, err := get(ctx, address+"/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(body)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", s.Manager, err)
	}
	for name, into := range map[string]*float64{
		"process_resident_memory_bytes": &s.Memory, "go_memstats_heap_inuse_bytes": &s.Heap, "go_goroutines": &s.Goroutines,
	} {
		family := families[name]
		if family == nil {
			return nil, fmt.Errorf("%s has no metric %s", s.Manager, name)
		}
		*into = family.GetMetric()[0].GetGauge().GetValue()
	}
	return s, nil
}

// Ready waits until the process is ready.
func (m *Manager) Ready(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 3*time.Minute, true,
		func(ctx context.Context) (bool, error) { return m.IsReady(ctx), nil })
	if err != nil {
		return fmt.Errorf("waiting for manager %s: %w", m.Name, err)
	}
	return nil
}
