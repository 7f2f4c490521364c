package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// TestFeaturesOfStatefulSets shows which gates make which features (ASTS-266 (part), ASTS-270 (part)).
// ASTS-285: images are pulled ahead if both gates are on; that jobs must be served is shown by
// TestImagesArePulledAhead, and how that is found out by TestPullJobsAreWatchedOnceTheirKindIsServed.
func TestFeaturesOfStatefulSets(t *testing.T) {
	all := statefulset.Features{StartOrdinal: true, PodIndexLabel: true, DeleteClaims: true, ResizeClaims: true, PreDownload: true}
	without := func(change func(*statefulset.Features)) statefulset.Features {
		features := all
		change(&features)
		return features
	}
	const on = "StatefulSetStartOrdinal=true,PodIndexLabel=true,StatefulSetAutoDeletePVC=true,StatefulSetAutoResizePVCGate=true," +
		"KruiseDaemon=true,PreDownloadImageForInPlaceUpdate=true"
	for off, want := range map[string]statefulset.Features{
		"":                                 all,
		"StatefulSetStartOrdinal":          without(func(f *statefulset.Features) { f.StartOrdinal = false }),
		"PodIndexLabel":                    without(func(f *statefulset.Features) { f.PodIndexLabel = false }),
		"StatefulSetAutoDeletePVC":         without(func(f *statefulset.Features) { f.DeleteClaims = false }),
		"StatefulSetAutoResizePVCGate":     without(func(f *statefulset.Features) { f.ResizeClaims = false }),
		"KruiseDaemon":                     without(func(f *statefulset.Features) { f.PreDownload = false }),
		"PreDownloadImageForInPlaceUpdate": without(func(f *statefulset.Features) { f.PreDownload = false }),
	} {
		text := on
		if off != "" {
			text = strings.Replace(on, off+"=true", off+"=false", 1)
		}
		gates, err := features.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		e := &framework.Environment{Gates: gates}
		if diff := cmp.Diff(want, featuresOf(e)); diff != "" {
			t.Errorf("%s is off: %s", off, diff)
		}
	}
}
