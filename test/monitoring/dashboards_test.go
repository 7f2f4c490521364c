package monitoring

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// dashboard is what we look at of Grafana's model.
type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query any    `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource source `json:"datasource"`
	GridPos    struct{ X, Y, W, H int }
	Targets    []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		Datasource   source `json:"datasource"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

type source struct{ Type, UID string }

var (
	variable   = regexp.MustCompile(`\$(\w+)`)
	labelsOf   = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	legend     = regexp.MustCompile(`\{\{(\w+)\}\}`)
	byGrafana  = strings.NewReplacer("$__rate_interval", "5m", "$__interval", "1m", "$__range", "1h")
	fromPoints = source{Type: "prometheus", UID: "${datasource}"}
)

// OPS-129: dashboards are what Grafana reads, and their queries use metrics and labels that there are.
func TestDashboardsQueryMetricsThatThereAre(t *testing.T) {
	all := rulesKnown(t)
	files, err := filepath.Glob(config + "dashboards/*.json")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	shipped := configMaps(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := read(t, file)
			if shipped[filepath.Base(file)] != text {
				t.Error("dashboards.yaml has another text: run make generate")
			}
			var d dashboard
			if err := json.Unmarshal([]byte(text), &d); err != nil {
				t.Fatal(err)
			}
			if d.UID+".json" != filepath.Base(file) || d.Title == "" || d.SchemaVersion < 36 {
				t.Errorf("uid %q, title %q, schema %d", d.UID, d.Title, d.SchemaVersion)
			}
			d.check(t, all)
		})
	}
}

func (d *dashboard) check(t *testing.T, all catalogue) {
	t.Helper()
	variables := map[string]bool{}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if v.Type != "query" {
			continue
		}
		query, _ := v.Query.(map[string]any)
		text, _ := query["query"].(string)
		parts := labelsOf.FindStringSubmatch(text)
		if parts == nil {
			t.Errorf("variable %s has query %q", v.Name, text)
			continue
		}
		if _, err := promql.ParseExpr(parts[1]); err != nil {
			t.Errorf("variable %s: %v", v.Name, err)
		}
	}
	if !variables["datasource"] || d.Templating.List[0].Type != "datasource" {
		t.Error("one cannot choose the data source")
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for i := range d.Panels {
		p := &d.Panels[i]
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("panel %q has id %d, which is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if taken[[2]int{x, y}] != "" || x >= 24 {
					t.Fatalf("panel %q lies over %q, or outside", p.Title, taken[[2]int{x, y}])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if !strings.HasSuffix(p.Title, "?") || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || p.Datasource != fromPoints {
			t.Errorf("panel %q: unit %q, %d targets, data source %v", p.Title, p.FieldConfig.Defaults.Unit, len(p.Targets), p.Datasource)
		}
		p.check(t, all, variables)
	}
}

func (p *panel) check(t *testing.T, all catalogue, variables map[string]bool) {
	t.Helper()
	refs := map[string]bool{}
	for _, target := range p.Targets {
		if refs[target.RefID] || target.RefID == "" || target.LegendFormat == "" || target.Datasource != fromPoints {
			t.Errorf("panel %q: a target with id %q, legend %q, data source %v", p.Title, target.RefID, target.LegendFormat, target.Datasource)
		}
		refs[target.RefID] = true
		expression := byGrafana.Replace(target.Expr)
		for _, used := range variable.FindAllStringSubmatch(expression, -1) {
			if !variables[used[1]] {
				t.Errorf("panel %q uses $%s, which is no variable", p.Title, used[1])
			}
		}
		if err := all.check(expression); err != nil {
			t.Errorf("panel %q: %v", p.Title, err)
			continue
		}
		parsed, err := promql.ParseExpr(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, label := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
			if !all.shows(parsed, label[1]) {
				t.Errorf("panel %q: its legend has %s, which %s does not have", p.Title, label[1], target.Expr)
			}
		}
	}
}

// shows tells whether the result of an expression has the label.
func (c catalogue) shows(node parser.Node, label string) bool {
	if sum, ok := node.(*parser.AggregateExpr); ok && sum.Op != parser.TOPK {
		for _, name := range sum.Grouping {
			if name == label {
				return true
			}
		}
		return false
	}
	if selector, ok := node.(*parser.VectorSelector); ok {
		return c.has(selector, label)
	}
	for child := range parser.ChildrenIter(node) {
		if c.shows(child, label) {
			return true
		}
	}
	return false
}

// configMaps are the texts in dashboards.yaml, all of which Grafana's sidecar finds by their label.
func configMaps(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	decoder := yaml.NewDecoder(strings.NewReader(read(t, config+"dashboards.yaml")))
	for {
		var object struct {
			Kind     string
			Metadata struct{ Labels map[string]string }
			Data     map[string]string
		}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if object.Kind != "ConfigMap" || object.Metadata.Labels["grafana_dashboard"] != "1" {
			t.Errorf("an object %s with labels %v", object.Kind, object.Metadata.Labels)
		}
		for name, text := range object.Data {
			found[name] = text
		}
	}
}
