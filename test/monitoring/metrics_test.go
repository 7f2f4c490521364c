package monitoring

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

const config = "../../config/monitoring/"

var promql = parser.NewParser(parser.Options{})

// catalogue has the labels of each metric, by its name as it is queried.
type catalogue map[string][]string

// foreign are metrics of others: API servers, kube-state-metrics and Prometheus itself.
var foreign = catalogue{
	"up": {},
	"apiserver_admission_webhook_admission_duration_seconds_bucket": {"name", "type", "operation", "rejected", "le"},
	"apiserver_admission_webhook_fail_open_count":                   {"name", "type"},
	"apiserver_admission_webhook_rejection_count":                   {"name", "type", "operation", "error_type", "rejection_code"},
	"kube_daemonset_status_desired_number_scheduled":                {"daemonset"},
	"kube_daemonset_status_number_unavailable":                      {"daemonset"},
	"kube_deployment_spec_replicas":                                 {"deployment"},
	"kube_deployment_status_replicas_available":                     {"deployment"},
	"kube_pod_container_status_restarts_total":                      {"container", "uid"},
}

// ofTarget are labels that Prometheus gives to all that it scrapes; node is made by servicemonitor.yaml.
var ofTarget = []string{"job", "instance", "namespace", "pod", "service", "container", "endpoint", "node"}

// known is what rules and dashboards may use.
func known(t *testing.T) catalogue {
	t.Helper()
	all := maps.Clone(foreign)
	for line := range strings.Lines(read(t, "libraries.txt")) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
			all.add(fields[0], fields[1], fields[2:])
		}
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\|([^|]*)\\|")
	rows := row.FindAllStringSubmatch(read(t, "../../docs/operate/metrics.md"), -1)
	if len(rows) < 30 {
		t.Fatalf("only %d metrics are on the page", len(rows))
	}
	for _, cells := range rows {
		var labels []string
		for _, label := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[3], -1) {
			labels = append(labels, label[1])
		}
		all.add(cells[1], cells[2], labels)
	}
	return all
}

// add adds a metric, with the names that its histogram has.
func (c catalogue) add(name, kind string, labels []string) {
	if kind == "histogram" {
		for _, suffix := range []string{"_sum", "_count"} {
			c[name+suffix] = labels
		}
		c[name+"_bucket"] = append(slices.Clone(labels), "le")
		return
	}
	c[name] = labels
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var value T
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// check parses an expression and says which of its metrics and labels do not exist.
func (c catalogue) check(expression string) error {
	parsed, err := promql.ParseExpr(expression)
	if err != nil {
		return fmt.Errorf("parsing %s: %w", expression, err)
	}
	return c.walk(parsed)
}

// walk checks a part of an expression by the metrics in that part, so that a label is not taken for one of a
// metric beside it.
func (c catalogue) walk(node parser.Node) error {
	var wanted []string
	switch n := node.(type) {
	case *parser.VectorSelector:
		labels, ok := c[n.Name]
		if !ok {
			return fmt.Errorf("there is no metric %q", n.Name)
		}
		for _, matcher := range n.LabelMatchers {
			if matcher.Name != "__name__" && !slices.Contains(labels, matcher.Name) && !slices.Contains(ofTarget, matcher.Name) {
				return fmt.Errorf("%s has no label %s", n.Name, matcher.Name)
			}
		}
		return nil
	case *parser.AggregateExpr:
		wanted = n.Grouping
	case *parser.BinaryExpr:
		if n.VectorMatching != nil {
			wanted = append(slices.Clone(n.VectorMatching.MatchingLabels), n.VectorMatching.Include...)
		}
	}
	for _, label := range wanted {
		if !slices.Contains(ofTarget, label) && !c.has(node, label) {
			return fmt.Errorf("nothing in %s has the label %s", node, label)
		}
	}
	for child := range parser.ChildrenIter(node) {
		if err := c.walk(child); err != nil {
			return err
		}
	}
	return nil
}

// has tells whether every metric below a node has the label.
func (c catalogue) has(node parser.Node, label string) bool {
	found := true
	parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
		if selector, ok := n.(*parser.VectorSelector); ok {
			found = found && (slices.Contains(c[selector.Name], label) || slices.Contains(ofTarget, label))
		}
		return nil
	})
	return found
}

// The check itself finds what is wrong.
func TestUnknownMetricsAndLabelsAreFound(t *testing.T) {
	all := known(t)
	for expression, want := range map[string]bool{
		`sum by (namespace, name) (afloat_cloneset_pods_waiting{reason="NotReady"})`:               true,
		`histogram_quantile(0.9, sum by (le) (rate(workqueue_queue_duration_seconds_bucket[5m])))`: true,
		`afloat_cloneset_pods_wating`:                                               false,
		`afloat_cloneset_pods_waiting{raeson="NotReady"}`:                           false,
		`sum by (subset) (afloat_cloneset_pods_waiting)`:                            false,
		`afloat_inplace_update_duration_seconds`:                                    false,
		`afloat_sidecarset_pods / on (revision) afloat_sidecarset_pods_by_revision`: false,
		`sum(rate(`: false,
	} {
		if err := all.check(expression); (err == nil) != want {
			t.Errorf("%s: %v", expression, err)
		}
	}
}
