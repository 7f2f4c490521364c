package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// startUp measures how the manager starts in a large cluster, and how much memory its caches take beside one
// that keeps every pod whole.
func startUp(ctx context.Context, b *bench) error {
	const count, size, foreign = 8, 250, 8000
	b.sets.spec = usualPodSpec
	if err := b.startManager(ctx); err != nil {
		return err
	}
	empty, err := b.memoryAtRest(ctx, "before any pod")
	if err != nil {
		return err
	}
	b.report.atMost("memory after start", empty.rss, 60, "MiB")
	emptyCache, err := fullCache(ctx)
	if err != nil {
		return err
	}
	pods, names, err := manyPods(ctx, b, count, size)
	if err != nil {
		return err
	}
	defer pods.close()
	// The other pods are created while the manager is stopped, so that its memory comes from its start alone.
	if err := b.manager.stop(ctx); err != nil {
		return err
	}
	nodes, err := b.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	foreigners, err := observe(ctx, b.kube, others)
	if err != nil {
		return err
	}
	defer foreigners.close()
	if err := newBareClient(b.bare, others, foreigners).fill(ctx, foreign, len(nodes.Items)); err != nil {
		return err
	}
	full, err := fullCache(ctx)
	if err != nil {
		return err
	}
	// One pod is missing, so that the manager has something to do.
	written := pods.expect("", func() bool { return len(pods.pods) == count*size+1 })
	if err := b.sets.scale(ctx, names[0], size+1); err != nil {
		return err
	}
	begin := time.Now()
	if err := b.startManager(ctx); err != nil {
		return err
	}
	b.report.figure("start with 10,000 pods: ready and admitting", time.Since(begin).Seconds(), "s")
	at, err := pods.wait(ctx, "the missing pod is made", written)
	if err != nil {
		return err
	}
	b.report.figure("start with 10,000 pods: first pod written", at.Sub(begin).Seconds(), "s")
	cpu, err := b.manager.cpu()
	if err != nil {
		return err
	}
	b.report.figure("start with 10,000 pods: CPU until then", cpu, "s")
	select { // wait for steady memory: the manager frees memory again half a minute after its start
	case <-time.After(time.Until(begin.Add(40 * time.Second))):
	case <-ctx.Done():
		return ctx.Err()
	}
	now, err := b.memoryAtRest(ctx, "with 10,000 pods")
	if err != nil {
		return err
	}
	b.report.figure("full-object cache of all pods, heap", full.Heap-emptyCache.Heap, "MiB")
	b.report.figure("full-object cache of all pods, RSS", full.RSS-emptyCache.RSS, "MiB")
	b.report.figure("full-object cache of all pods, peak RSS while it fills", full.Peak-emptyCache.Peak, "MiB")
	if now.heap > 0 {
		b.report.atMost("heap for 10,000 pods, part of what a full-object cache takes",
			100*(now.heap-empty.heap)/(full.Heap-emptyCache.Heap), 100./3, "%")
	}
	b.report.atMost("RSS for 10,000 pods, part of what a full-object cache takes", 100*(now.rss-empty.rss)/(full.RSS-emptyCache.RSS),
		100./3, "%")
	return nil
}

type restingMemory struct{ rss, heap float64 }

// memoryAtRest waits until the manager writes nothing any more and reports its memory, before and after a
// garbage collection.
func (b *bench) memoryAtRest(ctx context.Context, when string) (restingMemory, error) {
	log, err := b.log()
	if err != nil {
		return restingMemory{}, err
	}
	if _, err := b.quiet(ctx, log); err != nil {
		return restingMemory{}, err
	}
	m, err := b.manager.memory()
	if err != nil {
		return restingMemory{}, err
	}
	b.report.figure("memory "+when+", RSS", m.RSS, "MiB")
	b.report.figure("memory "+when+", PSS", m.PSS, "MiB")
	b.report.figure("memory "+when+", peak RSS since the start", m.Peak, "MiB")
	heap, err := b.manager.heapAfterGC(ctx)
	if err != nil {
		return restingMemory{}, err
	}
	if heap > 0 {
		b.report.figure("memory "+when+", heap after a collection", heap, "MiB")
	}
	return restingMemory{rss: m.RSS, heap: heap}, nil
}

// cacheMemory is the memory that the full-object cache reports, in MiB.
type cacheMemory struct {
	memory
	Heap float64
	Pods int
}

// fullCache runs this program as a child, with a cache that keeps every pod whole.
func fullCache(ctx context.Context) (cacheMemory, error) {
	var m cacheMemory
	self, err := os.Executable()
	if err != nil {
		return m, err
	}
	command := exec.CommandContext(ctx, self, "-full-cache")
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return m, fmt.Errorf("full-object cache: %w", err)
	}
	return m, json.Unmarshal(out, &m)
}

// holdFullCache fills a cache with all pods as they are, prints what memory that takes and ends.
func holdFullCache(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("KUBECONFIG: %w", err)
	}
	kube, err := typed(config, harnessAgent)
	if err != nil {
		return err
	}
	watch := cache.NewListWatchFromClient(kube.CoreV1().RESTClient(), "pods", corev1.NamespaceAll, fields.Everything())
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{ListerWatcher: watch, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{}})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return context.Cause(ctx)
	}
	self := process{os.Getpid()}
	m := cacheMemory{Pods: len(store.List())}
	if m.memory, err = self.memory(); err != nil {
		return err
	}
	runtime.GC() // for the heap alone; as in the manager, Go decides which memory it gives back to the system
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	m.Heap = float64(stats.HeapAlloc) / (1 << 20)
	runtime.KeepAlive(store)
	out := bufio.NewWriter(os.Stdout)
	if err := json.NewEncoder(out).Encode(m); err != nil {
		return err
	}
	return out.Flush()
}
