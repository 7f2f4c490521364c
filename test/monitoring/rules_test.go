package monitoring

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// ruleFile is what stands below spec in the PrometheusRule, as the manual cuts it out for a Prometheus
// without the operator.
func ruleFile(t *testing.T) string {
	t.Helper()
	_, spec, found := strings.Cut(read(t, config+"rules.yaml"), "\nspec:\n")
	if !found {
		t.Fatal("rules.yaml has no spec")
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(regexp.MustCompile("(?m)^  ").ReplaceAllString(spec, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func groups(t *testing.T) []rulefmt.RuleGroup {
	t.Helper()
	parsed, errs := rulefmt.ParseFile(ruleFile(t), false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return parsed.Groups
}

// rulesKnown has the recorded metrics, too, with their labels.
func rulesKnown(t *testing.T) catalogue {
	t.Helper()
	all := known(t)
	for _, group := range groups(t) {
		for _, rule := range group.Rules {
			if rule.Record == "" {
				continue
			}
			labels := append([]string{}, all[rule.Record]...)
			for name := range rule.Labels {
				labels = append(labels, name)
			}
			if parsed, err := promql.ParseExpr(rule.Expr); err == nil {
				if sum, ok := parsed.(*parser.AggregateExpr); ok {
					labels = append(labels, sum.Grouping...)
				}
			}
			all[rule.Record] = labels
		}
	}
	return all
}

// Rules, like dashboards (OPS-129 (part)), use metrics and labels that there are.
func TestRulesUseWhatThereIs(t *testing.T) {
	all := rulesKnown(t)
	for _, group := range groups(t) {
		for _, rule := range group.Rules {
			if err := all.check(rule.Expr); err != nil {
				t.Errorf("%s%s: %v", rule.Alert, rule.Record, err)
			}
		}
	}
}

// OPS-125: each alert says how urgent it is, what is wrong, and where one reads what to do.
func TestAlertsSayWhatToDo(t *testing.T) {
	manual := read(t, "../../docs/operate/monitoring.md")
	for _, group := range groups(t) {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" {
				t.Errorf("%s has severity %q", rule.Alert, severity)
			}
			for _, name := range []string{"summary", "description", "runbook_url"} {
				if rule.Annotations[name] == "" {
					t.Errorf("%s has no %s", rule.Alert, name)
				}
			}
			if !strings.Contains(manual, "| `"+rule.Alert+"` |") {
				t.Errorf("%s is not in docs/operate/monitoring.md", rule.Alert)
			}
		}
	}
	for _, name := range regexp.MustCompile("(?m)^\\| `(Afloat[A-Za-z]+)` \\|").FindAllStringSubmatch(manual, -1) {
		if !slices.Contains(alertNames(t), name[1]) {
			t.Errorf("docs/operate/monitoring.md speaks of %s, which is no alert", name[1])
		}
	}
}

// The sections that alerts point to are there.
func TestRunbooksAreThere(t *testing.T) {
	for _, group := range groups(t) {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			t.Run(rule.Alert, func(t *testing.T) {
				path, ok := strings.CutPrefix(rule.Annotations["runbook_url"], "https://github.com/afloat-project/afloat/blob/main/")
				file, anchor, found := strings.Cut(path, "#")
				if !ok || !found {
					t.Fatalf("it points to %s", rule.Annotations["runbook_url"])
				}
				if !slices.Contains(anchors(read(t, "../../"+file)), anchor) {
					t.Errorf("there is no #%s in %s", anchor, file)
				}
			})
		}
	}
}

// anchors are those that GitHub makes of the headings of a page.
func anchors(page string) []string {
	var found []string
	for _, heading := range regexp.MustCompile("(?m)^#+ (.+)$").FindAllStringSubmatch(page, -1) {
		plain := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(strings.ToLower(heading[1]), "")
		found = append(found, strings.ReplaceAll(plain, " ", "-"))
	}
	return found
}

func alertNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, group := range groups(t) {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				names = append(names, rule.Alert)
			}
		}
	}
	return names
}

// The alerts about webhooks are about all entries that we have, shipped or made by the manager, and about no
// others.
func TestWebhookAlertsKnowAllEntries(t *testing.T) {
	entry := regexp.MustCompile(`"?([a-z0-9-]+[.]kb[.]io)"?`)
	names := map[string]bool{}
	for _, file := range []string{"../../config/webhook/mutating.yaml", "../../config/webhook/validating.yaml",
		"../../internal/plugin/operations/installation/installation.go"} {
		for _, name := range entry.FindAllStringSubmatch(read(t, file), -1) {
			names[name[1]] = true
		}
	}
	if len(names) < 25 {
		t.Fatalf("found only %d entries", len(names))
	}
	names["vcertificate.kb.io"], names["mpodx.kb.io"] = false, false
	seen := 0
	for _, group := range groups(t) {
		for _, rule := range group.Rules {
			parsed, err := promql.ParseExpr(rule.Expr)
			if err != nil {
				t.Fatal(err)
			}
			for _, selector := range parser.ExtractSelectors(parsed) {
				for _, matcher := range selector {
					if matcher.Name != "name" || !strings.Contains(matcher.Value, "kb") {
						continue
					}
					seen++
					for name, ours := range names {
						if matcher.Matches(name) != ours {
							t.Errorf("%s: whether it is about %s: %v", rule.Alert, name, !ours)
						}
					}
				}
			}
		}
	}
	if seen < 3 {
		t.Errorf("only %d selectors by name of webhook", seen)
	}
}
