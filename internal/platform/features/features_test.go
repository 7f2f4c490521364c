package features

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/featuregate"
)

// changed lists the gates that differ from the defaults, sorted.
func changed(t *testing.T, g *Gates) []string {
	t.Helper()
	defaults, err := Parse("")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	before := strings.Split(defaults.String(), ",")
	for i, entry := range strings.Split(g.String(), ",") {
		if entry != before[i] {
			out = append(out, entry)
		}
	}
	return out
}

func TestParse(t *testing.T) {
	tests := map[string]struct {
		list     string
		changed  []string
		warnings []string
	}{
		"OPS-035 empty means the defaults": {"", nil, nil},
		"what is the default already":      {"PodWebhook=true, CloneSetShortHash=false", nil, nil},
		"set both ways": {"CloneSetShortHash=true,WorkloadSpread=false",
			[]string{"CloneSetShortHash=true", "WorkloadSpread=false"}, nil},
		"spaces": {" CloneSetShortHash = true , WorkloadSpread=false",
			[]string{"CloneSetShortHash=true", "WorkloadSpread=false"}, nil},
		"OPS-035 the documentation's spelling of one": {"EnhancedLivenessProbeGate=true", []string{"EnhancedLivenessProbe=true"},
			[]string{"feature gate EnhancedLivenessProbeGate is called EnhancedLivenessProbe"}},
		"OPS-035, OPS-038 the documentation's spelling of the other, which does nothing": {"ForceDeleteTimeoutExpectationFeatureGate=true",
			[]string{"ForceDeleteTimeoutExpectationGate=true"},
			[]string{"feature gate ForceDeleteTimeoutExpectationFeatureGate is called ForceDeleteTimeoutExpectationGate",
				"feature gate ForceDeleteTimeoutExpectationGate does nothing: doubtful writes are always settled by a live read"}},
		"OPS-038 a gate that is not needed": {"CloneSetEventHandlerOptimization=true", []string{"CloneSetEventHandlerOptimization=true"},
			[]string{"feature gate CloneSetEventHandlerOptimization does nothing: events are always filtered by what they change"}},
		"OPS-036 without pod webhook": {"PodWebhook=false",
			[]string{"PodUnavailableBudgetDeleteGate=false", "PodWebhook=false", "WorkloadSpread=false"}, nil},
		"OPS-036, OPS-037 without pod webhook, against the user's wishes": {
			"PodWebhook=false,KruisePodReadinessGate=true,WorkloadSpread=true,PodUnavailableBudgetUpdateGate=false",
			[]string{"PodUnavailableBudgetDeleteGate=false", "PodWebhook=false", "WorkloadSpread=false"},
			[]string{"feature gate KruisePodReadinessGate=true is overridden because PodWebhook is false",
				"feature gate WorkloadSpread=true is overridden because PodWebhook is false"}},
		"OPS-036, ND-180, ND-100 without daemon": {"KruiseDaemon=false",
			[]string{"DaemonWatchingPod=false", "ImagePullJobGate=false", "InPlaceUpdateEnvFromMetadata=false",
				"KruiseDaemon=false", "PodProbeMarkerGate=false", "PreDownloadImageForInPlaceUpdate=false", "SidecarTerminator=false"},
			nil},
		"OPS-036 without daemon nothing is pulled ahead, whatever the user says": {
			"KruiseDaemon=false,PreDownloadImageForInPlaceUpdate=true,PreDownloadImageForDaemonSetUpdate=true",
			[]string{"DaemonWatchingPod=false", "ImagePullJobGate=false", "InPlaceUpdateEnvFromMetadata=false",
				"KruiseDaemon=false", "PodProbeMarkerGate=false", "PreDownloadImageForInPlaceUpdate=false", "SidecarTerminator=false"},
			[]string{"feature gate PreDownloadImageForInPlaceUpdate=true is overridden because KruiseDaemon is false",
				"feature gate PreDownloadImageForDaemonSetUpdate=true is overridden because KruiseDaemon is false"}},
		"ND-180 without daemon nothing that needs it, whatever the user says": {
			"KruiseDaemon=false,EnhancedLivenessProbe=true,SidecarTerminator=true,PodProbeMarkerGate=true,DaemonWatchingPod=true,InPlaceUpdateEnvFromMetadata=true,ImagePullJobGate=true",
			[]string{"DaemonWatchingPod=false", "ImagePullJobGate=false", "InPlaceUpdateEnvFromMetadata=false",
				"KruiseDaemon=false", "PodProbeMarkerGate=false", "PreDownloadImageForInPlaceUpdate=false", "SidecarTerminator=false"},
			[]string{"feature gate DaemonWatchingPod=true is overridden because KruiseDaemon is false",
				"feature gate InPlaceUpdateEnvFromMetadata=true is overridden because KruiseDaemon is false",
				"feature gate PodProbeMarkerGate=true is overridden because KruiseDaemon is false",
				"feature gate SidecarTerminator=true is overridden because KruiseDaemon is false",
				"feature gate ImagePullJobGate=true is overridden because KruiseDaemon is false",
				"feature gate EnhancedLivenessProbe=true is overridden because KruiseDaemon is false"}},
		"OPS-037 any spelling of true counts as the user's wish": {"PodWebhook=f,WorkloadSpread=1",
			[]string{"PodUnavailableBudgetDeleteGate=false", "PodWebhook=false", "WorkloadSpread=false"},
			[]string{"feature gate WorkloadSpread=true is overridden because PodWebhook is false"}},
		"OPS-036 pulling ahead forces the jobs on": {"ImagePullJobGate=false", nil,
			[]string{"feature gate ImagePullJobGate=false is overridden because PreDownloadImageForInPlaceUpdate is true"}},
		"OPS-036 either way of pulling ahead does": {
			"ImagePullJobGate=false,PreDownloadImageForInPlaceUpdate=false,PreDownloadImageForDaemonSetUpdate=true",
			[]string{"PreDownloadImageForDaemonSetUpdate=true", "PreDownloadImageForInPlaceUpdate=false"},
			[]string{"feature gate ImagePullJobGate=false is overridden because PreDownloadImageForDaemonSetUpdate is true"}},
		"OPS-036 neither: the user's word": {"ImagePullJobGate=false,PreDownloadImageForInPlaceUpdate=false",
			[]string{"ImagePullJobGate=false", "PreDownloadImageForInPlaceUpdate=false"}, nil},
		"OPS-036 without protection no cascading protection": {
			"ResourcesDeletionProtection=false,DeletionProtectionForCRDCascadingGate=true",
			[]string{"ResourcesDeletionProtection=false"},
			[]string{"feature gate DeletionProtectionForCRDCascadingGate=true is overridden because ResourcesDeletionProtection is false"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g, err := Parse(tt.list)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.changed, changed(t, g)); diff != "" {
				t.Errorf("gates that differ from their defaults (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.warnings, g.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// ND-100, ND-180 to ND-182, ND-184, ND-186: the gates of the daemon and of the pod webhook are on by default.
// Manager and daemon accept the same text, also with whole stages in it.
func TestDefaultsOfTheDaemon(t *testing.T) {
	gates := []featuregate.Feature{KruiseDaemon, DaemonWatchingPod, InPlaceUpdateEnvFromMetadata, PodProbeMarkerGate, PodWebhook}
	for list, want := range map[string]bool{"": true, "AllAlpha=true,AllBeta=true": true, "AllBeta=false": false,
		"AllBeta=false,AllBeta=true": true} {
		g, err := Parse(list)
		if err != nil {
			t.Fatalf("parsing %q: %v", list, err)
		}
		for _, gate := range gates {
			if got := g.Enabled(gate); got != want {
				t.Errorf("%q: gate %s is on: got %t, want %t", list, gate, got, want)
			}
		}
	}
	g, err := Parse("AllAlpha=true")
	if err != nil {
		t.Errorf("parsing AllAlpha=true: %v", err)
	}
	if !g.Enabled(KruisePodReadinessGate) {
		t.Errorf("AllAlpha=true: gate %s is off: %s", KruisePodReadinessGate, g)
	}
	if !g.Enabled(CloneSetShortHash) {
		t.Errorf("AllAlpha=true: gate %s is off: %s", CloneSetShortHash, g)
	}
}

// OPS-038: an error that names the gate.
func TestARefusalNamesTheGate(t *testing.T) {
	for name, list := range map[string]string{"an unknown gate": "WorkloadSpread=true,NoSuchGate=true",
		"a value that is none": "NoSuchGate=maybe", "no value": "NoSuchGate"} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(list); err == nil {
				t.Errorf("parsing %q: no error", list)
			} else if !strings.Contains(err.Error(), "NoSuchGate") {
				t.Errorf("parsing %q: got error %v, want one that names NoSuchGate", list, err)
			}
		})
	}
}

// OPS-038: every gate of the specification's table is known, with its stage, and no other.
func TestGatesAreThoseOfTheSpecification(t *testing.T) {
	file, err := os.Open("../../../docs/spec/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	row := regexp.MustCompile("^\\| `([A-Za-z]+)` \\| (?:true|false) \\| (Alpha|Beta) \\|")
	want, got := map[string]string{}, map[string]string{}
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if match := row.FindStringSubmatch(scanner.Text()); match != nil {
			want[match[1]] = match[2]
		}
	}
	for feature, spec := range specs() {
		got[string(feature)] = map[bool]string{true: "Alpha", false: "Beta"}[spec.PreRelease == featuregate.Alpha]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("gates and their stages (-want +got):\n%s", diff)
	}
}

// OPS-037: one sample for each gate, with its stage; 1 where it is on.
func TestMetric(t *testing.T) {
	g, err := Parse("CloneSetShortHash=true,WorkloadSpread=false")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(g.Metric())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != 1 {
		t.Fatalf("metrics: got %v, want 1", families)
	}
	if name := families[0].GetName(); name != "kruise_feature_enabled" {
		t.Fatalf("name of the metric: got %s, want kruise_feature_enabled", name)
	}
	var names []string
	for _, metric := range families[0].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		names = append(names, labels["name"])
		feature := featuregate.Feature(labels["name"])
		if on := metric.GetGauge().GetValue() == 1; on != g.Enabled(feature) {
			t.Errorf("gate %s is shown as on: got %t, want %t", feature, on, !on)
		}
		if want := string(specs()[feature].PreRelease); labels["stage"] != want {
			t.Errorf("%s has stage %s, want %s", feature, labels["stage"], want)
		}
	}
	if len(names) != len(specs()) {
		t.Errorf("gates of the metric: got %d, want %d: %v", len(names), len(specs()), names)
	}
	if !slices.Contains(names, "CloneSetShortHash") {
		t.Errorf("gates of the metric: got %v, want CloneSetShortHash among them", names)
	}
}

// Each gate names a requirement that exists.
func TestGatesBelongToRequirements(t *testing.T) {
	files, err := filepath.Glob("../../../docs/spec/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no file of the specification is found")
	}
	var spec strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		spec.Write(text)
	}
	for feature, gate := range gates {
		if !strings.Contains(spec.String(), "- "+gate.requirement+" ") {
			t.Errorf("gate %s: the specification lacks its requirement %q", feature, gate.requirement)
		}
		if gate.since == "" {
			t.Errorf("gate %s: it is not said since when it exists", feature)
		}
	}
}
