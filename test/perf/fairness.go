package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// smallTenant is the namespace whose waiting time is measured; its CloneSet has smallSize pods.
	smallTenant, smallSize = "perf-small", 5
	// mostDelay is how much longer, in seconds, a change may wait because of what others do.
	mostDelay = 1
)

// fairness measures how long a small set waits while others have much to do.
func fairness(ctx context.Context, b *bench) (err error) {
	debug.SetGCPercent(400) // the server must not take time from the manager
	end, err := onFastServer(ctx, b, 25)
	if err != nil {
		return err
	}
	defer func() { err = end(err) }()
	if _, err := b.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: smallTenant}},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := b.startManager(ctx); err != nil {
		return err
	}
	small, err := observe(ctx, b.kube, smallTenant)
	if err != nil {
		return err
	}
	defer small.close()
	if err := b.sets.in(smallTenant).create(ctx, "small", smallSize, "100%"); err != nil {
		return err
	}
	if _, err := small.wait(ctx, "the small set", small.expect("", func() bool { return small.ready == smallSize })); err != nil {
		return err
	}
	turn := 0
	alone, err := smallUpdates(ctx, b, small, &turn, func(n int) bool { return n < 9 })
	if err != nil {
		return err
	}
	b.report.figure("alone, until the first pod is written: median", alone.median(), "s")
	for _, load := range []struct {
		name        string
		count, size int
	}{{"one set of 5000 pods", 1, 5000}, {"2000 sets of one pod", 2000, 1}, {"40 sets of 250 pods", 40, 250}} {
		if err := beside(ctx, b, small, &turn, load.name, load.count, load.size, alone.median()); err != nil {
			return err
		}
	}
	return nil
}

// waits are times from a change until the first pod was written for it, in seconds.
type waits []float64

func (w waits) median() float64 {
	sorted := slices.Sorted(slices.Values(w))
	return sorted[len(sorted)/2]
}

// smallUpdates updates the small set again and again, as long as goOn says so after n updates.
func smallUpdates(ctx context.Context, b *bench, small *observer, turn *int, goOn func(n int) bool) (took waits, err error) {
	for n := 0; goOn(n); n++ {
		*turn++
		image := images[*turn%len(images)]
		first := small.expect("", func() bool { return small.meant[image] > 0 })
		all := small.expect("", func() bool { return small.serving[image] == smallSize })
		begin := time.Now()
		if err := b.sets.in(smallTenant).image(ctx, "small", image); err != nil {
			return nil, err
		}
		at, err := small.wait(ctx, "the first pod of the small set", first)
		if err != nil {
			return nil, err
		}
		took = append(took, at.Sub(begin).Seconds())
		if _, err := small.wait(ctx, "the small set", all); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// beside measures the small set while others are created, and while they are updated.
func beside(ctx context.Context, b *bench, small *observer, turn *int, name string, count, size int, alone float64) error {
	pods, err := observe(ctx, b.kube, ours)
	if err != nil {
		return err
	}
	defer pods.close()
	set := func(i int) string { return fmt.Sprintf("load-%d-%04d", count, i) }
	total := count * size
	measure := func(what string, reached <-chan time.Time, begin func(i int) error) error {
		working, failed := make(chan struct{}), make(chan error, 1)
		go func() {
			defer close(working)
			if err := many(count, begin); err != nil {
				failed <- err
				return
			}
			if _, err := pods.wait(ctx, what, reached); err != nil {
				failed <- err
			}
		}()
		took, err := smallUpdates(ctx, b, small, turn, func(int) bool {
			select {
			case <-working:
				return false
			default:
				return true
			}
		})
		<-working
		if err != nil {
			return err
		}
		select {
		case err := <-failed:
			return err
		default:
		}
		if len(took) == 0 {
			b.report.note("%s: it was over before the small set was changed.", what)
			return nil
		}
		b.report.figure(what+": changes of the small set", float64(len(took)), "")
		b.report.figure(what+", until the first pod of the small set is written: median", took.median(), "s")
		b.report.atMost(what+": longest wait more than alone", slices.Max(took)-alone, mostDelay, "s")
		return nil
	}
	if err := measure(name+" created", pods.expect("", func() bool { return pods.ready == total }),
		func(i int) error { return b.sets.create(ctx, set(i), size, "100%") }); err != nil {
		return err
	}
	if err := measure(name+" updated", pods.expect("", func() bool { return pods.serving[images[1]] == total }),
		func(i int) error { return b.sets.image(ctx, set(i), images[1]) }); err != nil {
		return err
	}
	gone := pods.expect("", func() bool { return len(pods.pods) == 0 })
	if err := many(count, func(i int) error { return b.sets.scale(ctx, set(i), 0) }); err != nil {
		return err
	}
	_, err = pods.wait(ctx, "pods end", gone)
	return err
}
