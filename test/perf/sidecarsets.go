package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// pace is how many pods per second are created with SidecarSets, no matter how long answers take, so that a
// slow answer does not delay the next request.
const pace = 100 // a second

// sidecarSetCounts are the numbers of SidecarSets that creation is measured with. One of them selects the
// pods that get a sidecar.
var sidecarSetCounts = []int{0, 10, 200}

// withSidecarSets measures the creation of pods at a pace, with more and more SidecarSets, and at last
// without any webhook.
func withSidecarSets(ctx context.Context, b *bench) error {
	made := 0
	for _, n := range sidecarSetCounts {
		for ; made < n; made++ {
			if err := b.createSidecarSet(ctx, made); err != nil {
				return err
			}
		}
		if err := b.injectionIs(ctx, n); err != nil {
			return err
		}
		if err := b.measurePaced(ctx, fmt.Sprintf("%d SidecarSets", n)); err != nil {
			return err
		}
	}
	restore, err := b.withoutWebhooks(ctx)
	if err != nil {
		return err
	}
	err = b.measurePaced(ctx, "without webhooks")
	if err := restore(ctx); err != nil {
		return err
	}
	return err
}

func (b *bench) createSidecarSet(ctx context.Context, i int) error {
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet",
		"metadata": map[string]any{"name": fmt.Sprintf("sidecar-%03d", i)},
		"spec": map[string]any{
			"selector":          map[string]any{"matchLabels": map[string]any{"sidecar": fmt.Sprint(i)}},
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": others}},
			"updateStrategy":    map[string]any{"type": "NotUpdate"},
			"containers": []any{map[string]any{"name": fmt.Sprintf("side-%d", i), "image": images[0],
				"shareVolumePolicy": map[string]any{"type": "enabled"},
				"volumeMounts":      []any{map[string]any{"name": fmt.Sprintf("spool-%d", i), "mountPath": "/spool"}}}},
			"volumes": []any{map[string]any{"name": fmt.Sprintf("spool-%d", i), "emptyDir": map[string]any{}}},
		}}}
	resource := b.sets.client.Resource(schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1beta1", Resource: "sidecarsets"})
	if _, err := resource.Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a SidecarSet: %w", err)
	}
	return nil
}

// injectionIs waits until the last of n SidecarSets injects its sidecar.
func (b *bench) injectionIs(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	return poll(ctx, fmt.Sprintf("%d SidecarSets are in force", n), 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		pod, err := b.createPaced(ctx, 0, fmt.Sprint(n-1))
		return err == nil && len(pod.Spec.Containers) == 2, nil
	})
}

func (b *bench) createPaced(ctx context.Context, i int, sidecar string) (*corev1.Pod, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("paced-%d", i), Labels: map[string]string{"app": "other"}},
		Spec: usualPodSpec(images[0])}
	if sidecar != "" {
		pod.Labels["sidecar"] = sidecar
	}
	return b.kube.CoreV1().Pods(others).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// measurePaced creates pods by dry runs, half of them with the label that a SidecarSet selects, and reports
// how long each took.
func (b *bench) measurePaced(ctx context.Context, situation string) error {
	kinds := map[string]string{"pod that SidecarSets select": "0", "pod of others": ""}
	return b.paced(ctx, situation, "creations", pace, slices.Sorted(maps.Keys(kinds)), func(ctx context.Context, kind string, i int) error {
		_, err := b.createPaced(ctx, i, kinds[kind])
		return err
	})
}

// paced creates pods of the kinds in turn at a pace, and reports how long each took.
func (b *bench) paced(ctx context.Context, situation, requests string, perSecond int, kinds []string,
	create func(ctx context.Context, kind string, i int) error) error {
	var (
		mu      sync.Mutex
		took    = map[string][]time.Duration{}
		failed  error
		running sync.WaitGroup
	)
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	for i := range rounds() {
		select {
		case <-ctx.Done():
			running.Wait()
			return ctx.Err()
		case <-ticker.C:
		}
		kind := kinds[i%len(kinds)]
		running.Go(func() {
			begin := time.Now()
			err := create(ctx, kind, i)
			mu.Lock()
			defer mu.Unlock()
			took[kind] = append(took[kind], time.Since(begin))
			if err != nil {
				failed = fmt.Errorf("%s: %s of a %s: %w", situation, requests, kind, err)
			}
		})
	}
	running.Wait()
	if failed != nil {
		return failed
	}
	for _, kind := range kinds {
		for _, q := range []int{50, 99} {
			b.report.figure(fmt.Sprintf("%s, %d %s a second: %s, p%d", situation, perSecond, requests, kind, q), millis(took[kind], q), "ms")
		}
	}
	return nil
}
