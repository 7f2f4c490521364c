package monitoring

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// scenarios are what testdata/alerts.yaml has.
type scenarios struct {
	// Healthy are the series of an installation that is well, with their values in the notation of promtool.
	Healthy map[string]string `yaml:"healthy"`
	Alerts  []scenario        `yaml:"alerts"`
}

// scenario is a trouble, and the alert that tells of it.
type scenario struct {
	Alert string `yaml:"alert"`
	// Change has series that are not as in a healthy installation; a series without values is not there.
	Change map[string]string `yaml:"change"`
	// Silent is when the alert does not fire yet, and Fires when it does, from the beginning.
	Silent model.Duration `yaml:"silent"`
	Fires  model.Duration `yaml:"fires"`
	// Labels of the alert, but for its name and severity.
	Labels map[string]string `yaml:"labels"`
	// Also fire then, because the trouble is theirs, too.
	Also []string `yaml:"also"`
	// Never says that the change is none of the alert's business: it does not fire at all, nor does another.
	Never bool `yaml:"never"`
}

const healthyFor = 3 * time.Hour

// play evaluates all rules every minute, on series in the notation of promtool, and calls look with the
// alerts that fire.
func play(t *testing.T, file string, series map[string]string, until time.Duration, look func(at time.Duration, firing []*rules.Alert)) {
	t.Helper()
	load := "load 1m\n"
	for _, name := range slices.Sorted(maps.Keys(series)) {
		if series[name] != "" {
			load += fmt.Sprintf("  %s %s\n", name, series[name])
		}
	}
	suite, err := promqltest.NewLazyLoader(load, promqltest.LazyLoaderOpts{Parser: promql, EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := suite.Close(); err != nil {
			t.Error(err)
		}
	}()
	suite.SubqueryInterval = time.Minute
	manager := rules.NewManager(&rules.ManagerOptions{QueryFunc: rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
		AppendableV2: suite.Storage(), Context: context.Background(), NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger: promslog.NewNopLogger(), Parser: promql})
	loaded, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, file)
	if errs != nil {
		t.Fatal(errs)
	}
	for at := time.Duration(0); at <= until; at += time.Minute {
		now := time.Unix(0, 0).UTC().Add(at)
		var firing []*rules.Alert
		suite.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range loaded {
				group.Eval(suite.Context(), now)
				for _, rule := range group.Rules() {
					if rule.LastError() != nil {
						t.Fatalf("%s: %v", rule.Name(), rule.LastError())
					}
					if alerting, ok := rule.(*rules.AlertingRule); ok {
						for _, alert := range alerting.ActiveAlerts() {
							if alert.State == rules.StateFiring {
								firing = append(firing, alert)
							}
						}
					}
				}
			}
		})
		look(at, firing)
	}
}

func names(alerts []*rules.Alert) []string {
	var found []string
	for _, alert := range alerts {
		found = append(found, alert.Labels.Get("alertname"))
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// OPS-128: all alerts are silent while all is well; each fires when its trouble has lasted for long enough,
// and not before, and no other does.
func TestEachAlertFiresForItsTroubleAlone(t *testing.T) {
	file := ruleFile(t)
	all := decode[scenarios](t, read(t, "testdata/alerts.yaml"))
	text := map[string]string{}
	fires := map[string]bool{}
	for _, group := range groups(t) {
		for _, rule := range group.Rules {
			text[rule.Alert] = strings.Join(slices.Sorted(maps.Values(rule.Annotations)), " ")
		}
	}
	t.Run("healthy", func(t *testing.T) {
		play(t, file, all.Healthy, healthyFor, func(at time.Duration, firing []*rules.Alert) {
			if len(firing) > 0 {
				t.Fatalf("after %s: %v", at, names(firing))
			}
		})
	})
	for i, s := range all.Alerts {
		fires[s.Alert] = fires[s.Alert] || !s.Never
		t.Run(fmt.Sprintf("%s-%d", s.Alert, i), func(t *testing.T) {
			series := maps.Clone(all.Healthy)
			maps.Copy(series, s.Change)
			until := time.Duration(s.Fires)
			if s.Never {
				until = healthyFor
			}
			found := false
			play(t, file, series, until, func(at time.Duration, firing []*rules.Alert) {
				got := names(firing)
				switch {
				case s.Never && len(got) > 0:
					t.Fatalf("after %s: %v", at, got)
				case !s.Never && at <= time.Duration(s.Silent) && slices.Contains(got, s.Alert):
					t.Fatalf("it fires after %s already", at)
				case !s.Never && at == until:
					want := slices.Sorted(slices.Values(append([]string{s.Alert}, s.Also...)))
					if !slices.Equal(got, want) {
						t.Fatalf("after %s there are %v, want %v", at, got, want)
					}
					for _, alert := range firing {
						found = found || alert.Labels.Get("alertname") == s.Alert && s.matches(t, alert, text[s.Alert])
					}
				}
			})
			if !found && !s.Never {
				t.Errorf("no alert has the labels %v", s.Labels)
			}
		})
	}
	for _, name := range alertNames(t) {
		if !fires[name] {
			t.Errorf("%s has no scenario in which it fires", name)
		}
	}
}

// matches tells whether an alert has exactly the labels, and checks that its texts use no other.
func (s *scenario) matches(t *testing.T, alert *rules.Alert, text string) bool {
	t.Helper()
	got := alert.Labels.Map()
	delete(got, "alertname")
	delete(got, "severity")
	if !maps.Equal(got, s.Labels) {
		t.Logf("labels %v", got)
		return false
	}
	for _, used := range regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`).FindAllStringSubmatch(text, -1) {
		if got[used[1]] == "" {
			t.Errorf("its text has the label %s, which is empty", used[1])
		}
	}
	for _, words := range alert.Annotations.Map() {
		if strings.Contains(words, "{{") || strings.Contains(words, "<error expanding") || strings.Contains(words, "<no value>") {
			t.Errorf("its text is %s", words)
		}
	}
	return true
}
