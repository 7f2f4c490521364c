package registry

import (
	"strings"
	"testing"

	"github.com/afloat-project/afloat/internal/platform/features"
)

// PPM-032, PPM-147: the manual says that who creates a PodProbeMarker runs commands as with exec, and that
// its probes and those of kubelet are independent.
func TestTheManualTellsWhatProbesGive(t *testing.T) {
	page, rights := text(t, "docs/kinds/podprobemarker.md"), text(t, "docs/operate/rights.md")
	if !strings.Contains(page, "runs commands in every pod of the namespace, as with `pods/exec`") || !strings.Contains(rights, "| PodProbeMarkers | run commands in every pod") {
		t.Error("the right to PodProbeMarkers")
	}
	if !strings.Contains(page, "independent of\nreadiness, liveness and startup probes") {
		t.Error("probes of kubelet")
	}
}

// PPM-020 (part), PPM-110 (part), PPM-120 (part): which gates are on by default, and which force them off.
func TestGatesOfProbes(t *testing.T) {
	for list, want := range map[string][3]bool{"": {true, false, false}, "EnablePodProbeMarkerOnServerless=true,EnhancedLivenessProbe=true": {true, true, true},
		"EnablePodProbeMarkerOnServerless=true,EnhancedLivenessProbe=true,PodWebhook=false":   {true, false, false},
		"EnablePodProbeMarkerOnServerless=true,EnhancedLivenessProbe=true,KruiseDaemon=false": {false, true, false}} {
		gates, err := features.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		got := [3]bool{gates.Enabled(features.PodProbeMarkerGate), gates.Enabled(features.EnablePodProbeMarkerOnServerless), gates.Enabled(features.EnhancedLivenessProbe)}
		if got != want {
			t.Errorf("%q: %v", list, got)
		}
		if off := kindNamed(t, "PodProbeMarker").Gates.Off(gates); (off == nil) != want[0] {
			t.Errorf("%q: %v", list, off)
		}
	}
	for _, name := range []string{"PodProbeMarker", "NodePodProbe"} {
		if kind := kindNamed(t, name); kind.Workers != 3 || kind.Controller != strings.ToLower(name) {
			t.Errorf("%+v", kind)
		}
	}
}
