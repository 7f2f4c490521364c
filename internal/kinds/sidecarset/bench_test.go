package sidecarset

import (
	"testing"
)

// BenchmarkPlan plans for 5000 pods: at rest, and when all are outdated; the pods are known already.
func BenchmarkPlan(b *testing.B) {
	for name, image := range map[string]string{"rest": "proxy:1", "rollout": "proxy:2"} {
		s := at(makeSet(imageNow("proxy", image)), makeSet(), 5000)
		s.Known = &Knowledge{}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Make(s)
			}
		})
	}
}
