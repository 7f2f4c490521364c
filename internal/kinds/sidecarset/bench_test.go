package sidecarset_test

import (
	"testing"

	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
)

// BenchmarkPlan plans for 5000 pods: at rest, and when all are outdated; the pods are known already.
func BenchmarkPlan(b *testing.B) {
	for name, image := range map[string]string{"rest": "proxy:1", "rollout": "proxy:2"} {
		s := sidecarsettest.Snapshot(sidecarsettest.Set(sidecarsettest.Image("proxy", image)), sidecarsettest.Set(), 5000)
		s.Known = &sidecarset.Knowledge{}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sidecarset.Make(s)
			}
		})
	}
}
