package reconcile

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// What a WriteLimiter does when a server answers: after so many windows of answers that take so long, with
// tasks waiting or not.
func TestAFlowAdaptsToTheServer(t *testing.T) {
	busy := apierrors.NewTooManyRequests("busy", 1)
	type answers struct {
		windows int
		took    time.Duration
		err     error
		full    bool
		calm    types.UID // another owner, which gets half of the answers, and no error
	}
	tests := map[string]struct {
		answers []answers
		want    int
	}{
		"fast and all places are taken": {[]answers{{4, time.Millisecond, nil, true, ""}}, 64},
		"as fast with a distant server": {[]answers{{4, 100 * time.Millisecond, nil, true, ""}}, 64},
		"never above the most":          {[]answers{{100, time.Millisecond, nil, true, ""}}, flowMost},
		"places are free":               {[]answers{{4, time.Millisecond, nil, false, ""}}, flowFirst},
		"it becomes slow":               {[]answers{{4, time.Millisecond, nil, true, ""}, {3, 50 * time.Millisecond, nil, true, ""}}, 46},
		"slow for long, but not too few": {[]answers{{4, time.Millisecond, nil, true, ""}, {20, 50 * time.Millisecond, nil, true, ""}},
			flowFirst},
		"it has no time for long": {[]answers{{20, time.Millisecond, busy, true, ""}}, flowLeast},
		"it has no time":          {[]answers{{1, time.Millisecond, busy, true, ""}}, 28},
		"a refusal for another reason": {[]answers{{4, time.Millisecond, apierrors.NewConflict(corev1.Resource("pods"), "a", nil), true, ""}},
			64},
		"one of two is told to come later": {[]answers{{2, time.Millisecond, busy, true, "calm"}}, 64},
		"fast again":                       {[]answers{{4, time.Millisecond, busy, true, ""}, {30, time.Millisecond, nil, true, ""}}, flowMost},
		"slow from some time on is the best": {[]answers{{1, time.Millisecond, nil, true, ""}, {600, 50 * time.Millisecond, nil, true, ""}},
			flowMost},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := NewWriteLimiter(0)
			for _, a := range tt.answers {
				for range a.windows * flowWindow {
					f.full = a.full
					if a.calm != "" {
						f.observe(a.calm, a.took, nil)
						f.full = a.full
					}
					f.observe("owner", a.took, a.err)
				}
			}
			if int(f.limit) != tt.want {
				t.Errorf("%d places, want %d", int(f.limit), tt.want)
			}
		})
	}
	var none *WriteLimiter
	none.observe("owner", time.Second, busy)
}

// An owner with few tasks does not wait for one with many, and all that begins ends.
func TestFlowIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, started := NewWriteLimiter(0), time.Now()
		var all sync.WaitGroup
		ended := map[types.UID]time.Duration{}
		var mu sync.Mutex
		most, running := int32(0), atomic.Int32{}
		for owner, tasks := range map[types.UID]int{"large": 32 * 100, "small": 16 * 2, "other": 5} {
			all.Go(func() {
				if owner != "large" {
					time.Sleep(time.Second / 2) // when the other has all that one may have
				}
				for _, err := range f.Each(t.Context(), owner, tasks, func(int) error {
					n := running.Add(1)
					mu.Lock()
					most = max(most, n)
					mu.Unlock()
					time.Sleep(time.Second)
					running.Add(-1)
					return nil
				}) {
					if err != nil {
						t.Errorf("a task of owner %s: %v", owner, err)
					}
				}
				mu.Lock()
				ended[owner] = time.Since(started)
				mu.Unlock()
			})
		}
		all.Wait()
		if most != flowFirst {
			t.Errorf("tasks at once: got %d at most, want %d", most, flowFirst)
		}
		// A place that becomes free while an owner takes another one goes to the next, so that it may take a round more.
		if ended["other"] > 3*time.Second {
			t.Errorf("the owner with 5 tasks ended after %s, want 3s at most", ended["other"])
		}
		if ended["small"] > 5*time.Second {
			t.Errorf("the owner with 32 tasks ended after %s, want 5s at most", ended["small"])
		}
		if ended["large"] > 110*time.Second {
			t.Errorf("the owner with 3200 tasks ended after %s, want 110s at most", ended["large"])
		}
		if f.running != 0 {
			t.Errorf("tasks that still run: got %d, want 0", f.running)
		}
		if len(f.busy) != 0 {
			t.Errorf("owners that are still busy: got %v, want none", f.busy)
		}
		if len(f.waiting) != 0 {
			t.Errorf("owners that still wait: got %v, want none", f.waiting)
		}
	})
}

// Nobody waits when the context has ended, a panic is an error, and without a WriteLimiter one task follows
// the other.
func TestAFlowEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewWriteLimiter(0)
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second / 2)
			stop()
		}()
		errs := f.Each(ctx, "a", 100, func(i int) error {
			time.Sleep(time.Second)
			if i == 0 {
				panic("at the first")
			}
			return nil
		})
		if errs[0] == nil {
			t.Error("the task that panics: no error")
		}
		if errs[1] != nil {
			t.Errorf("a task beside one that panics: %v", errs[1])
		}
		if !errors.Is(errs[flowFirst], context.Canceled) {
			t.Errorf("the first task that waited: got %v, want %v", errs[flowFirst], context.Canceled)
		}
		if !errors.Is(errs[99], context.Canceled) {
			t.Errorf("the last task: got %v, want %v", errs[99], context.Canceled)
		}
		for _, err := range f.Each(ctx, "a", 2, func(int) error { t.Error("begun after the end"); return nil }) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a task after the end: got %v, want %v", err, context.Canceled)
			}
		}
		if f.running != 0 {
			t.Errorf("tasks that still run: got %d, want 0", f.running)
		}
		if len(f.waiting) != 0 {
			t.Errorf("owners that still wait: got %v, want none", f.waiting)
		}
	})
	var none *WriteLimiter
	order := []int{}
	none.Each(t.Context(), "a", 3, func(i int) error { order = append(order, i); return nil })
	if len(order) != 3 {
		t.Errorf("tasks without a limiter: got %v, want 3", order)
	} else if order[0] != 0 || order[2] != 2 {
		t.Errorf("order of the tasks without a limiter: got %v, want [0 1 2]", order)
	}
}
