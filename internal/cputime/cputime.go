// Package cputime measures what code costs in tests. The time of a clock also has the time that other processes
// take: a test that bounds it fails on a busy machine.
package cputime

import (
	"runtime"
	"testing"
	"time"
)

// Start begins to measure the CPU time of the calling goroutine, and keeps the goroutine on its thread. The
// returned function ends this, and returns the time. It does not see what other goroutines do.
func Start(t testing.TB) (spent func() time.Duration) {
	t.Helper()
	runtime.LockOSThread()
	began := now(t)
	return func() time.Duration {
		defer runtime.UnlockOSThread()
		return now(t) - began
	}
}
