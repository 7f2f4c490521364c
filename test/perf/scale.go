package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// scaleNodes, scaleNamespaces and scaleSize are the nodes, the namespaces, and the pods of each CloneSet of
	// scenario scale.
	scaleNodes, scaleNamespaces, scaleSize = 5000, 200, 50
	// scaleRest is for how long the manager is measured at rest.
	scaleRest = 20 * time.Second
)

// scaleSlices are how many CloneSets there are in each slice.
var scaleSlices = []int{200, 500, 1000, 2000}

// scale measures how what the manager needs grows with the cluster.
func scale(ctx context.Context, b *bench) (err error) {
	debug.SetGCPercent(200)
	end, err := onFastServer(ctx, b, scaleNodes)
	if err != nil {
		return err
	}
	defer func() { err = end(err) }()
	if err := many(scaleNodes, func(i int) error {
		_, err := b.kube.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i),
			Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: fmt.Sprintf("z%d", i%3)}}}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	if err := many(scaleNamespaces, func(i int) error {
		_, err := b.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: scaleNamespace(i)}},
			metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	if err := b.startManager(ctx); err != nil {
		return err
	}
	if _, err := b.memoryAtRest(ctx, "without pods"); err != nil {
		return err
	}
	pods, err := observe(ctx, b.kube, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	defer pods.close()
	have := 0
	for _, sets := range scaleSlices {
		if err := scaleTo(ctx, b, pods, have, sets); err != nil {
			return err
		}
		have = sets
	}
	return scaleUpdateAll(ctx, b, pods, have)
}

func scaleNamespace(set int) string { return fmt.Sprintf("scale-%03d", set%scaleNamespaces) }

func scaleName(set int) string { return fmt.Sprintf("s%04d", set) }

// many runs do for 0 to n-1, a few at a time.
func many(n int, do func(i int) error) error {
	const atATime = 50
	for from := 0; from < n; from += atATime {
		if err := each(min(atATime, n-from), func(i int) error { return do(from + i) }); err != nil {
			return err
		}
	}
	return nil
}

// scaleTo makes CloneSets until there are so many, and measures one slice.
func scaleTo(ctx context.Context, b *bench, pods *observer, from, to int) error {
	total := to * scaleSize
	what := fmt.Sprintf("%d pods", total)
	if _, err := b.managerStep(ctx, what+": "+stepCreate, (to-from)*scaleSize, func(ctx context.Context) (begin, end time.Time, err error) {
		ready := pods.expect("", func() bool { return pods.ready == total })
		begin = time.Now()
		if err := many(to-from, func(i int) error {
			return b.sets.in(scaleNamespace(from+i)).create(ctx, scaleName(from+i), scaleSize, "100%")
		}); err != nil {
			return begin, end, err
		}
		end, err = pods.wait(ctx, "pods become ready", ready)
		return begin, end, err
	}); err != nil {
		return err
	}
	if err := scaleOne(ctx, b, pods, what, to-1); err != nil {
		return err
	}
	rest, err := b.managerStep(ctx, what+": rest", total, func(ctx context.Context) (begin, end time.Time, err error) {
		begin = time.Now()
		select { // this time is measured
		case <-time.After(scaleRest):
		case <-ctx.Done():
		}
		return begin, time.Now(), ctx.Err()
	})
	if err != nil {
		return err
	}
	rest.PodsPerSecond = 0
	b.report.figure(what+": CPU at rest", 1000*rest.CPU/rest.Seconds, "mCPU")
	if _, err := b.memoryAtRest(ctx, "with "+what); err != nil {
		return err
	}
	return scaleRestart(ctx, b, pods, what, total)
}

// scaleOne updates one CloneSet among many in place.
func scaleOne(ctx context.Context, b *bench, pods *observer, what string, set int) error {
	_, err := b.managerStep(ctx, what+": update of one set", scaleSize, func(ctx context.Context) (begin, end time.Time, err error) {
		pods.mu.Lock()
		before := pods.serving[images[1]]
		pods.mu.Unlock()
		done := pods.expect("", func() bool { return pods.serving[images[1]] == before+scaleSize })
		begin = time.Now()
		if err := b.sets.in(scaleNamespace(set)).image(ctx, scaleName(set), images[1]); err != nil {
			return begin, end, err
		}
		end, err = pods.wait(ctx, "one set is updated", done)
		return begin, end, err
	})
	return err
}

// scaleRestart ends the manager, deletes a pod meanwhile, and measures how long another one takes to replace it.
func scaleRestart(ctx context.Context, b *bench, pods *observer, what string, total int) error {
	if err := b.manager.stop(ctx); err != nil {
		return err
	}
	gone := pods.expect("", func() bool { return len(pods.pods) == total-1 })
	for name := range pods.snapshot() {
		if name[:len(scaleName(0))] == scaleName(0) {
			if err := b.kube.CoreV1().Pods(scaleNamespace(0)).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			break
		}
	}
	if _, err := pods.wait(ctx, "one pod is gone", gone); err != nil {
		return err
	}
	back := pods.expect("", func() bool { return len(pods.pods) == total })
	begin := time.Now()
	if err := b.startManager(ctx); err != nil {
		return err
	}
	b.report.figure(what+": start until ready and admitting", time.Since(begin).Seconds(), "s")
	at, err := pods.wait(ctx, "the missing pod is made", back)
	if err != nil {
		return err
	}
	b.report.figure(what+": start until the first pod is written", at.Sub(begin).Seconds(), "s")
	whole := pods.expect("", func() bool { return pods.ready == total })
	_, err = pods.wait(ctx, "all pods are ready", whole)
	return err
}

// scaleUpdateAll updates all CloneSets in place at once.
func scaleUpdateAll(ctx context.Context, b *bench, pods *observer, sets int) error {
	total := sets * scaleSize
	p, err := b.managerStep(ctx, fmt.Sprintf("%d pods: update of all sets", total), total, func(ctx context.Context) (begin, end time.Time, err error) {
		done := pods.expect("", func() bool { return pods.serving[images[2]] == total })
		begin = time.Now()
		if err := many(sets, func(i int) error {
			return b.sets.in(scaleNamespace(i)).image(ctx, scaleName(i), images[2])
		}); err != nil {
			return begin, end, err
		}
		end, err = pods.wait(ctx, "all sets are updated", done)
		return begin, end, err
	})
	if err != nil {
		return err
	}
	b.report.atMost("update of all sets, pod writes per pod", p.PodWrites, 3, "")
	return nil
}
