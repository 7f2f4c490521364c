package podapply

import (
	"context"
	"errors"
	"sync"
)

// SlowStart is [Execution.Pods] for workloads that create pods in batches. The first batch has the given
// size, and each further one is twice as large as the one before. When a creation of a batch fails, the
// remaining batches wait for another plan (BJ-073). The WriteLimiter bounds how many pods of a batch are
// created at once. SlowStart returns the size of the first batch of the next pass, which continues where this
// one ran out of time.
func (a *Execution) SlowStart(ctx context.Context, result *Result, batch int) (next int) {
	a.Pods(ctx, result, nil)
	end, left := a.Now().Add(passTime), a.plan.Create
	for batch = max(batch, 1); len(left) > 0; batch *= 2 {
		some := left[:min(batch, len(left))]
		left = left[len(some):]

		var mu sync.Mutex
		tried, bad := 0, false
		panics := a.InTime(ctx, result, len(some), func(i int) error {
			err := a.createOne(ctx, some[i])
			mu.Lock()
			defer mu.Unlock()
			tried++
			result.created(some[i], err)
			bad = bad || err != nil
			return nil
		})
		result.Add(&result.ScaleError, errors.Join(panics...))

		switch {
		case bad || ctx.Err() != nil:
			return 1
		case tried < len(some) || a.Now().After(end):
			result.Unfinished = result.Unfinished || len(left) > 0
			return max(tried, 1)
		}
	}

	return 1
}
