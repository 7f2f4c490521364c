package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/daemonset"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// TestFeaturesOfDaemonSets shows which gates and flags make which features (ADS-114 (part), ADS-121 (part), ADS-180 (part)).
func TestFeaturesOfDaemonSets(t *testing.T) {
	const all = "DaemonSetPruneIneligibleNodes=true,PreDownloadImageForDaemonSetUpdate=true"
	for text, want := range map[string]daemonset.Features{
		all: {PruneIneligible: true, PreDownload: true},
		"DaemonSetPruneIneligibleNodes=false,PreDownloadImageForDaemonSetUpdate=true": {PreDownload: true},
		"DaemonSetPruneIneligibleNodes=true,PreDownloadImageForDaemonSetUpdate=false": {PruneIneligible: true},
		all + ",KruiseDaemon=false": {PruneIneligible: true},
	} {
		gates, err := features.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, byScheduler := range []bool{true, false} {
			e := &framework.Environment{Gates: gates, Flags: framework.Flags{AssignByScheduler: byScheduler}}
			want.Binds = !byScheduler
			if diff := cmp.Diff(want, featuresOf(e)); diff != "" {
				t.Errorf("%s: %s", text, diff)
			}
		}
	}
}
