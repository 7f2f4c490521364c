package runtime

import (
	"testing"
	"time"
)

// CRR-165: which container is the newest does not depend on the node's clock, which may have been set back
// when it started.
func TestTheNewestContainerIsKnownWithoutClock(t *testing.T) {
	noon := time.Unix(1e9, 0)
	of := func(id string, restarts int32, running bool, created time.Time) Container {
		return Container{ID: id, Name: "app", RestartCount: restarts, Running: running, CreatedAt: created}
	}
	for name, tt := range map[string]struct {
		containers []Container
		want       string
	}{
		"restarted":                 {[]Container{of("a", 0, false, noon), of("b", 1, true, noon.Add(time.Hour))}, "b"},
		"clock set back":            {[]Container{of("a", 0, false, noon.Add(time.Hour)), of("b", 1, true, noon)}, "b"},
		"set back, not running yet": {[]Container{of("b", 1, false, noon), of("a", 0, false, noon.Add(time.Hour))}, "b"},
		"no counts":                 {[]Container{of("b", 0, false, noon.Add(time.Hour)), of("a", 0, false, noon)}, "b"},
		"counted anew":              {[]Container{of("a", 3, false, noon.Add(time.Hour)), of("b", 0, true, noon)}, "b"},
	} {
		if got := Newest(tt.containers, "app"); got.ID != tt.want {
			t.Errorf("%s: the newest container: got %s, want %s", name, got.ID, tt.want)
		}
	}
}
