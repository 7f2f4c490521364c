package matchconditions

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A caller does not get the result of a call that has begun before, since that may be too old: all such
// callers share the next call.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var together Together[string, int32]
		var begun atomic.Int32
		failed := errors.New("the second answer")
		slow := func(context.Context) (int32, error) {
			n := begun.Add(1)
			time.Sleep(time.Second) // by the clock of the synctest bubble
			if n == 2 {
				return n, failed
			}
			return n, nil
		}
		var all sync.WaitGroup
		var answers atomic.Int32
		ask := func(key string) {
			all.Go(func() {
				if n, err := together.Do(t.Context(), key, slow); n == 2 && errors.Is(err, failed) {
					answers.Add(1)
				}
			})
		}
		ask("a")
		synctest.Wait()
		for range 50 {
			ask("a")
		}
		synctest.Wait()
		if n := begun.Load(); n != 1 {
			t.Errorf("calls while the first one goes on: got %d, want 1", n)
		}
		all.Wait()
		synctest.Wait()
		together.mu.Lock()
		kept := len(together.keys)
		together.mu.Unlock()
		if n := begun.Load(); n != 2 {
			t.Errorf("calls for 51 callers: got %d, want 2", n)
		}
		if kept != 0 {
			t.Errorf("keys that are kept: got %d, want 0", kept)
		}
		if n := answers.Load(); n != 50 {
			t.Errorf("callers that got the second answer: got %d, want 50", n)
		}
		ask("a")
		ask("b")
		all.Wait()
		if n := begun.Load(); n != 4 {
			t.Errorf("calls in all: got %d, want 4", n)
		}
	})
}

// A caller whose context ends does not end the call for others, and a call that takes too long returns an
// error.
func TestACallOutlivesACallerThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		together := Together[string, int]{Limit: 5 * time.Second}
		var all sync.WaitGroup
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all.Go(func() {
			if _, err := together.Do(impatient, "a", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }); !errors.Is(err,
				context.DeadlineExceeded) {
				t.Errorf("a caller whose context ends: got %v, want %v", err, context.DeadlineExceeded)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if _, err := together.Do(t.Context(), "a", nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller of a call that takes too long: got %v, want %v",
					err, context.DeadlineExceeded)
			}
		})
		all.Wait()
	})
}
