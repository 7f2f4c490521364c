package judge

import (
	"testing"
	"time"

	"github.com/afloat-project/afloat/test/robustness/record"
)

func TestWhatManagersTakeMustBeFlat(t *testing.T) {
	const mebibyte = 1 << 20
	for name, test := range map[string]struct {
		length time.Duration
		// each is how much more there is of it after each minute.
		heap, goroutines float64
		asked            int
		violated         bool
	}{
		"flat":                {time.Hour, 0, 0, 1, false},
		"the heap grows":      {time.Hour, 2 * mebibyte, 0, 1, true},
		"a small growth":      {time.Hour, mebibyte / 20, 0.1, 1, false},
		"goroutines are left": {time.Hour, 0, 20, 1, true},
		"a short life":        {20 * time.Minute, 2 * mebibyte, 20, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			var samples []record.Sample
			for at := time.Duration(0); at <= test.length; at += time.Minute {
				samples = append(samples, record.Sample{Manager: "a.1", Time: begin.Add(at),
					Heap: 50*mebibyte + at.Minutes()*test.heap, Goroutines: 800 + at.Minutes()*test.goroutines})
			}
			v := &Verdict{Checked: map[string]int{}}
			v.lives(samples)
			if v.Checked[flat.name] != test.asked || len(v.Lives) != test.asked {
				t.Errorf("asked %d times about %v, want %d", v.Checked[flat.name], v.Lives, test.asked)
			}
			if violated := len(v.Violations()) > 0; violated != test.violated {
				t.Errorf("violated: %t: %+v", violated, v.Findings)
			}
		})
	}
}
