package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// atRest measures what the manager does while there is nothing to do, and what an event of a single pod
// causes.
func atRest(ctx context.Context, b *bench) error {
	const count, size = 50, 100
	if err := b.startManager(ctx); err != nil {
		return err
	}
	pods, names, err := manyPods(ctx, b, count, size)
	if err != nil {
		return err
	}
	defer pods.close()
	minute, err := b.managerStep(ctx, "one minute of rest", count*size, func(ctx context.Context) (begin, end time.Time, err error) {
		begin = time.Now()
		select { // one minute is measured
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
		return begin, time.Now(), ctx.Err()
	})
	if err != nil {
		return err
	}
	minute.PodsPerSecond = 0
	wrote := 0
	for _, n := range minute.Writes {
		wrote += n
	}
	b.report.atMost("rest, writes in a minute", float64(wrote), 0, "")
	b.report.atMost("rest, CPU", 1000*minute.CPU/minute.Seconds, 10, "mCPU")
	return podEvents(ctx, b, pods, names)
}

// podEvents touches one pod of every set, one after the other, and counts how often sets are reconciled
// because of that.
func podEvents(ctx context.Context, b *bench, pods *observer, names []string) error {
	one := map[string]string{}
	for pod := range pods.snapshot() {
		one[pod[:len(names[0])]] = pod
	}
	touched, err := b.managerStep(ctx, "one event of one pod of every set", len(one),
		func(ctx context.Context) (begin, end time.Time, err error) {
			begin = time.Now()
			for _, pod := range one {
				body := fmt.Appendf(nil, `{"metadata":{"annotations":{"perf":%q}}}`, begin.Format(time.RFC3339Nano))
				if _, err := b.kube.CoreV1().Pods(ours).Patch(ctx, pod, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
					return begin, end, err
				}
			}
			return begin, time.Now(), nil
		})
	if err != nil {
		return err
	}
	if touched.Requests != nil {
		b.report.atMost("reconciles for one event of one pod", touched.Reconciles/float64(len(one)), 1, "")
	}
	b.report.atMost("pod writes for one event of one pod", touched.PodWrites, 0, "")
	return nil
}
