package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metrics are read from a program that serves the usual metrics of controller-runtime and Go.
type metrics struct {
	// requests to the API server, by method, reads and events included.
	requests map[string]float64
	// reconciles of CloneSets and StatefulSets.
	reconciles float64
	// heap in use, in MiB.
	heap float64
}

// metrics returns nil if the manager has none.
func (m *manager) metrics(ctx context.Context) (*metrics, error) {
	if m.metric == "" {
		return nil, nil //nolint:nilnil // not served
	}
	body, err := fetch(ctx, m.metric)
	if err != nil {
		return nil, err
	}
	return parseMetrics(body)
}

func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", request.URL.Path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("reading %s: %s", request.URL.Path, response.Status)
	}
	return string(body), err
}

func parseMetrics(text string) (*metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	m := &metrics{requests: map[string]float64{}}
	for _, one := range families["rest_client_requests_total"].GetMetric() {
		m.requests[label(one, "method")] += one.GetCounter().GetValue()
	}
	for _, one := range families["controller_runtime_reconcile_total"].GetMetric() {
		if name := label(one, "controller"); strings.Contains(name, "cloneset") || strings.Contains(name, "statefulset") || strings.Contains(name, "daemonset") {
			m.reconciles += one.GetCounter().GetValue()
		}
	}
	for _, one := range families["go_memstats_heap_alloc_bytes"].GetMetric() {
		m.heap = one.GetGauge().GetValue() / (1 << 20)
	}
	return m, nil
}

func label(one *dto.Metric, name string) string {
	for _, l := range one.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// minus returns the requests since an earlier reading.
func (m *metrics) minus(before *metrics) map[string]float64 {
	since := maps.Clone(m.requests)
	for method, count := range before.requests {
		since[method] -= count
		if since[method] == 0 {
			delete(since, method)
		}
	}
	return since
}

// heapAfterGC makes the manager collect its garbage and returns what is left, in MiB; 0 if that cannot be
// known.
func (m *manager) heapAfterGC(ctx context.Context) (float64, error) {
	if m.pprof == "" || m.metric == "" {
		return 0, nil
	}
	if _, err := fetch(ctx, m.pprof+"/debug/pprof/heap?gc=1"); err != nil {
		return 0, err
	}
	now, err := m.metrics(ctx)
	if err != nil {
		return 0, err
	}
	return now.heap, nil
}

// profile stores profiles of what follows until the returned function is called: CPU in slices of some
// seconds, which pprof adds up, and what had been allocated before and after. Nothing happens unless
// PERF_PROFILES names a folder.
func (m *manager) profile(ctx context.Context, name string) (func() error, error) {
	const slice = 5 // seconds
	dir := os.Getenv("PERF_PROFILES")
	if dir == "" || m.pprof == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	store := func(what, file string) error {
		body, err := fetch(ctx, m.pprof+"/debug/pprof/"+what)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name+"."+file), []byte(body), 0o644)
	}
	if err := store("allocs", "allocs-before"); err != nil {
		return nil, err
	}
	end, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			if err := store(fmt.Sprintf("profile?seconds=%d", slice), fmt.Sprintf("cpu-%02d", i)); err != nil {
				done <- err
				return
			}
			select {
			case <-end:
				done <- nil
				return
			default:
			}
		}
	}()
	return func() error {
		close(end)
		if err := <-done; err != nil {
			return err
		}
		if err := store("allocs", "allocs-after"); err != nil {
			return err
		}
		return store("heap?gc=1", "heap")
	}, nil
}
