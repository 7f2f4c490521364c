// Package parallel runs many functions at the same time; the failure of one does not affect the others.
package parallel

import (
	"context"
	"fmt"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Do runs do for 0 to n-1, at most limit at a time, waits for all, and returns their errors by index. A panic becomes the error of its
// call; uncaught in a goroutine, it would end the process.
func Do(ctx context.Context, n, limit int, do func(i int) error) []error {
	var all sync.WaitGroup
	errs, slots := make([]error, n), make(chan struct{}, max(limit, 1))
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = Guarded(ctx, func() error { return do(i) })
		})
	}
	all.Wait()
	return errs
}

// Guarded runs do, and returns a panic as an error.
func Guarded(ctx context.Context, do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			for _, handle := range utilruntime.PanicHandlers { // they log the stack
				handle(ctx, cause)
			}
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return do()
}
