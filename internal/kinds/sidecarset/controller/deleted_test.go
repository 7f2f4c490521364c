package controller

import (
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestADeletedSidecarSetUpgradesNothing: a SidecarSet is changed and deleted, and the manager's cache shows
// the change alone. No pod is upgraded to what does not exist any more, and the API server is not asked
// without a pause (SS-005 (part)). The same holds where another of its name has come, which pods are upgraded
// to instead.
func TestADeletedSidecarSetUpgradesNothing(t *testing.T) {
	for name, another := range map[string]bool{"it is gone": false, "another of its name has come": true} {
		t.Run(name, func(t *testing.T) {
			s := simulate(1, sidecarsettest.Set(sidecarsettest.AllAtOnce), 2)
			if err := s.Settle(50); err != nil {
				t.Fatal(err)
			}
			s.change(sidecarsettest.Image("proxy", "proxy:2"))
			s.Events(1 << 20)
			former := s.Cached(setKey)
			s.Remove(setKey)
			if another {
				set := sidecarsettest.Set(sidecarsettest.AllAtOnce, sidecarsettest.Image("proxy", "proxy:3"))
				sidecarsettest.Stamp(set)
				s.Store(setKey, set)
			}
			s.Events(1 << 20)
			s.Show(setKey, former)
			reads := 0
			s.Answer = func(r *simulation.Request) error {
				if r.Verb == "get" && r.Key == setKey {
					reads++
				}
				return nil
			}
			for range 100 { // a second
				s.Manage()
				for _, pod := range s.AllPods() {
					if image := sidecarset.ImageOf(pod, "proxy"); image == "proxy:2" {
						t.Fatal("upgraded to what does not exist any more")
					}
				}
				s.Pass(10 * time.Millisecond)
			}
			if reads > 5 {
				t.Errorf("the SidecarSet is read %d times in a second", reads)
			}
		})
	}
}
