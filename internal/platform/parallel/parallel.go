// Package parallel does many things at the same time, and keeps what goes wrong with one from the others.
package parallel

import (
	"context"
	"fmt"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Do runs do for 0 to n-1, at most limit at a time, waits for all, and returns their errors by index. A panic is an error of the one that
// panicked: others live in this process, and nobody would catch it on a goroutine of its own.
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

// Guarded runs do, and makes an error of a panic.
func Guarded(ctx context.Context, do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			for _, handle := range utilruntime.PanicHandlers { // they log where
				handle(ctx, cause)
			}
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return do()
}
