//go:build integration

package tenants

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// manager is a running manager.
type manager struct {
	command *exec.Cmd
	proc    procfs.Proc
	// log is the file of its output.
	log string
	// webhooks, metrics and ready are addresses.
	webhooks, metrics, ready string
	// limit is the memory limit of the shipped Deployment, in bytes.
	limit int64
	// ended is closed when the process has ended, because of why.
	ended chan struct{}
	why   error
}

// build builds the manager once for all tests.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "manager")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "manager")
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-tags", "grpcnotrace", "-o", binary, "../../../cmd/manager").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the manager: %w: %s", err, out)
	}
	return binary, nil
})

// startManager starts a manager with the flags, the memory limit of Go and the rights that are shipped, and
// waits until it serves.
func (w *world) startManager() *manager {
	w.t.Helper()
	binary, err := build()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(binary)) })
	access, err := w.user(account, "system:serviceaccounts", "system:serviceaccounts:kruise-system").KubeConfig()
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	port, metrics, probes := freePort(w.t), freePort(w.t), freePort(w.t)
	m := &manager{log: filepath.Join(dir, "log"), webhooks: fmt.Sprintf("127.0.0.1:%d", port), metrics: fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics),
		ready: fmt.Sprintf("http://127.0.0.1:%d/readyz", probes), ended: make(chan struct{})}
	shipped := w.shipped.Spec.Template.Spec.Containers[0]
	m.limit = shipped.Resources.Limits.Memory().Value()
	i := slices.IndexFunc(shipped.Env, func(e corev1.EnvVar) bool { return e.Name == "GOMEMLIMIT" })
	if m.limit == 0 || i < 0 {
		w.t.Fatal("the Deployment has no memory limit, or no GOMEMLIMIT")
	}
	m.command = exec.CommandContext(context.Background(), binary, append(slices.Clone(shipped.Args), "--kubeconfig", write(w.t, "kubeconfig", access), //nolint:gosec // it is built here
		fmt.Sprintf("--metrics-addr=127.0.0.1:%d", metrics), fmt.Sprintf("--health-probe-addr=127.0.0.1:%d", probes),
		"--shutdown-delay-duration=0s", "--protection-log-path="+dir)...)
	m.command.Env = append(os.Environ(), "POD_NAMESPACE=kruise-system", "WEBHOOK_HOST=127.0.0.1", "WEBHOOK_CERT_WRITER=fs",
		"WEBHOOK_CERT_DIR="+filepath.Join(dir, "certs"), fmt.Sprintf("WEBHOOK_PORT=%d", port), "GOMEMLIMIT="+shipped.Env[i].Value)
	log, err := os.Create(m.log)
	if err != nil {
		w.t.Fatal(err)
	}
	m.command.Stdout, m.command.Stderr = log, log
	if err := m.command.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		m.why = m.command.Wait()
		_ = log.Close()
		close(m.ended)
	}()
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("the last lines of the manager:\n%s", m.tail())
		}
		_ = m.command.Process.Signal(os.Interrupt)
		<-m.ended
	})
	if m.proc, err = procfs.NewProc(m.command.Process.Pid); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the manager is ready", func() error { return errors.Join(m.died(), answers(w.t.Context(), m.ready)) })
	w.eventually("the webhooks answer", func() error {
		set := object(`{apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, metadata: {name: probe, namespace: default}, spec: {selector: {matchLabels: {a: b}},
			template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`)
		yes := true
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "probe", UID: types.UID("probe"), Controller: &yes}}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		return errors.Join(m.died(), w.kube.Create(w.t.Context(), set, client.DryRunAll), w.kube.Create(w.t.Context(), pod, client.DryRunAll))
	})
	return m
}

// died returns an error if the process has ended.
func (m *manager) died() error {
	select {
	case <-m.ended:
		return fmt.Errorf("the manager has ended: %w\n%s", m.why, m.tail())
	default:
		return nil
	}
}

// tail returns the last lines of the log.
func (m *manager) tail() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-8<<10):])
}

// answers returns an error unless the URL is answered with 200.
func answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// usage is what the manager used so far.
type usage struct {
	// cpu is in seconds; rss and peak are in bytes, the peak since it was reset; log is the length of its log.
	cpu             float64
	rss, peak       uint64
	goroutines      float64
	panics, repeats float64
	log             int64
}

// usage reads what the manager used. Its metrics are missing if it is too busy to answer.
func (m *manager) usage(ctx context.Context) (u usage, err error) {
	stat, err := m.proc.Stat()
	if err != nil {
		return u, err
	}
	status, err := m.proc.NewStatus()
	if err != nil {
		return u, err
	}
	u.cpu, u.rss, u.peak = stat.CPUTime(), status.VmRSS, max(status.VmHWM, status.VmRSS)
	if info, err := os.Stat(m.log); err == nil {
		u.log = info.Size()
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.metrics, nil)
	if err != nil {
		return u, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return u, nil //nolint:nilerr // it is busy
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return u, nil //nolint:nilerr // it is busy
	}
	sum := func(name string) (sum float64) {
		for _, one := range families[name].GetMetric() {
			sum += value(one)
		}
		return sum
	}
	u.goroutines, u.repeats = sum("go_goroutines"), sum("afloat_repeated_passes_total")
	u.panics = sum("controller_runtime_reconcile_panics_total") + sum("controller_runtime_webhook_panics_total")
	return u, nil
}

func value(one *dto.Metric) float64 { return one.GetGauge().GetValue() + one.GetCounter().GetValue() }

// resetPeak makes the peak of the memory begin anew.
func (m *manager) resetPeak() {
	_ = os.WriteFile("/proc/"+strconv.Itoa(m.proc.PID)+"/clear_refs", []byte("5"), 0)
}

// paniced returns the first line about a panic in the log from a position on; it is empty if there is none.
func (m *manager) paniced(from int64) string {
	text, err := os.ReadFile(m.log)
	if err != nil || int64(len(text)) < from {
		return ""
	}
	for line := range strings.Lines(string(text[from:])) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "Observed a panic") {
			return line
		}
	}
	return ""
}

// calms waits until the manager computes little.
func (m *manager) calms(t *testing.T) {
	t.Helper()
	last, at := 0.0, time.Time{}
	_ = within(t.Context(), 10*time.Second, func() error {
		stat, err := m.proc.Stat()
		if err != nil || time.Since(at) < time.Second && !at.IsZero() {
			return errors.Join(err, errors.New("measured again soon"))
		}
		cpu, part := stat.CPUTime(), (stat.CPUTime()-last)/time.Since(at).Seconds()
		known := !at.IsZero()
		if last, at = cpu, time.Now(); !known || part > 0.3 {
			return fmt.Errorf("it computes for %.0f %% of the time", 100*part)
		}
		return nil
	})
}
