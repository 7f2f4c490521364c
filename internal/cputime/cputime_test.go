package cputime_test

import (
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/cputime"
)

// What a goroutine computes counts, and what it waits does not.
func TestOnlyComputingCounts(t *testing.T) {
	spent := cputime.Start(t)
	<-time.After(200 * time.Millisecond)
	if took := spent(); took > 100*time.Millisecond {
		t.Errorf("waiting for 200 ms took %s of CPU time", took)
	}
	spent = cputime.Start(t)
	for began, n := time.Now(), 0; time.Since(began) < 200*time.Millisecond; n++ {
		_ = n
	}
	if took := spent(); took <= 0 {
		t.Errorf("computing for 200 ms took %s of CPU time", took)
	}
}
