package probe

import (
	"testing"
	"time"
)

// The node booted with a clock that was eight hours ahead (hardware clock in local time), the container started, and
// NTP set the clock back. Its probes must not rest for eight hours: initialDelaySeconds is 1.
func TestContainerThatStartedBeforeTheClockWasSetBack(t *testing.T) {
	p := NewProber(definition(), noon)
	p.Meet(running("c", noon.Add(8*time.Hour)), noon)
	for minute := range 60 {
		if p.Meet(running("c", noon.Add(8*time.Hour)), noon.Add(time.Duration(minute)*time.Minute)) {
			return
		}
	}
	t.Error("an hour after the container was met no attempt was due, its initial delay is one second")
}
