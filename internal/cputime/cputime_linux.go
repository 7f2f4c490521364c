package cputime

import (
	"syscall"
	"testing"
	"time"
)

// ofThread is RUSAGE_THREAD of getrusage(2), which package syscall does not name.
const ofThread = 1

func now(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(ofThread, &usage); err != nil {
		t.Fatalf("reading the CPU time of the thread: %v", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
