//go:build integration

package integration

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A running manager serves the metrics of its libraries that alerts and dashboards use, and all of its own
// that it serves are on the page of metrics, with their type and exactly their labels (OPS-092 (part),
// OPS-126 (part), OPS-129 (part)).
func TestMetricsOfARunningManager(t *testing.T) {
	set := cloneSet("v1beta1", "metered", "")
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kube.Delete(t.Context(), set) }()
	libraries, err := os.ReadFile("../monitoring/libraries.txt")
	if err != nil {
		t.Fatal(err)
	}
	var served map[string]*dto.MetricFamily
	if err := wait(func() error {
		var err error
		if served, err = scrape(t); err != nil {
			return err
		}
		for line := range strings.Lines(string(libraries)) {
			fields := strings.Fields(line)
			if len(fields) == 0 || fields[0] == "#" {
				continue
			}
			if err := isServed(served, fields[0], fields[1], fields[2:]); err != nil {
				return err
			}
		}
		for _, own := range []string{"afloat_cloneset_pods_waiting", "afloat_cloneset_pod_actions_total", "afloat_webhook_certificate_expiry_timestamp_seconds",
			"kruise_manager_is_leader", "kruise_feature_enabled", "afloat_tasks_limit"} {
			if served[own] == nil {
				return fmt.Errorf("%s is not served", own)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/operate/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\|").FindAllStringSubmatch(string(page), -1) {
		var labels []string
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, label[1])
		}
		documented[row[1]] = append([]string{row[2]}, labels...)
	}
	for name := range served {
		if !strings.HasPrefix(name, "afloat_") && !strings.HasPrefix(name, "kruise_") {
			continue
		}
		if row := documented[name]; row == nil {
			t.Errorf("%s is not on the page", name)
		} else if err := isServed(served, name, row[0], row[1:]); err != nil {
			t.Errorf("metric %s: %v", name, err)
		}
	}
}

func scrape(t *testing.T) (map[string]*dto.MetricFamily, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+metricsAddress+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(answer.Body)
}

func isServed(served map[string]*dto.MetricFamily, name, kind string, labels []string) error {
	family := served[name]
	if family == nil || len(family.GetMetric()) == 0 {
		return fmt.Errorf("%s is not served", name)
	}
	if got := strings.ToLower(family.GetType().String()); got != kind {
		return fmt.Errorf("%s is a %s, not a %s", name, got, kind)
	}
	var got []string
	for _, pair := range family.GetMetric()[0].GetLabel() {
		got = append(got, pair.GetName())
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(labels)); !slices.Equal(got, want) {
		return fmt.Errorf("%s has the labels %v, not %v", name, got, want)
	}
	return nil
}
