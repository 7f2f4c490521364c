package parallel

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each is done once, no more than the limit at a time, and a panic is the error of one.
func TestDo(t *testing.T) {
	var running, most, done atomic.Int32
	errs := Do(t.Context(), 20, 3, func(i int) error {
		if now := running.Add(1); now > most.Load() {
			most.Store(now)
		}
		defer running.Add(-1)
		done.Add(1)
		switch i {
		case 4:
			panic("four")
		case 7:
			return errors.New("seven")
		}
		return nil
	})
	got := map[int]string{}
	for i, err := range errs {
		if err != nil {
			got[i] = err.Error()
		}
	}
	if diff := cmp.Diff(map[int]string{4: "panic: four", 7: "seven"}, got); diff != "" {
		t.Error(diff)
	}
	if done.Load() != 20 || most.Load() > 3 {
		t.Errorf("%d done, %d at a time", done.Load(), most.Load())
	}
	if errs := Do(t.Context(), 1, 0, func(int) error { return nil }); len(errs) != 1 || errs[0] != nil {
		t.Errorf("%v", errs)
	}
}
