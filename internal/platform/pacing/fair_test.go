package pacing

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestIn(namespace string, i int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("o", i)}}
}

func newFair(t *testing.T, workers int) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	t.Helper()
	queue := FairQueue(workers)("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	return queue
}

// OPS-108 (part): an object of a namespace that has one comes next, whatever another namespace has put before it,
// and also beside objects without a namespace.
func TestNamespacesTakeTurns(t *testing.T) {
	queue := newFair(t, 1)
	for i := range 1000 {
		queue.Add(requestIn("many", i))
		queue.Add(requestIn("", i/500))
	}
	queue.Add(requestIn("one", 0))
	for i := range 5 {
		request, _ := queue.Get()
		queue.Done(request)
		if request.Namespace == "one" {
			return
		}
		if i == 4 {
			t.Errorf("five others came before it, the last is %s", request)
		}
	}
}

// OPS-108: one namespace leaves a quarter of the workers for others, and has a share if others have objects too.
// Objects without a namespace have turns of their own. A single worker works for whoever has something.
func TestNoNamespaceHasAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 8
		queue := FairQueue(workers)("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		var lock sync.Mutex
		running, ended := map[string]int{}, map[string]int{}
		long := map[string]time.Duration{"a": time.Minute, "b": time.Minute, "c": time.Second, "": time.Second}
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for {
					request, shutdown := queue.Get()
					if shutdown {
						return
					}
					lock.Lock()
					running[request.Namespace]++
					lock.Unlock()
					time.Sleep(long[request.Namespace])
					lock.Lock()
					running[request.Namespace]--
					ended[request.Namespace]++
					lock.Unlock()
					queue.Done(request)
				}
			})
		}
		at := func(want map[string]int) {
			t.Helper()
			synctest.Wait()
			lock.Lock()
			defer lock.Unlock()
			for namespace, n := range want {
				if running[namespace] != n {
					t.Errorf("workers of %s: got %d, want %d", namespace, running[namespace], n)
				}
			}
		}
		for i := range 100 {
			queue.Add(requestIn("a", i))
		}
		at(map[string]int{"a": 6})
		queue.Add(requestIn("", 0))
		queue.Add(requestIn("", 1))
		at(map[string]int{"a": 6, "": 2})
		time.Sleep(2 * time.Second)
		queue.Add(requestIn("c", 0))
		at(map[string]int{"a": 6, "c": 1})
		time.Sleep(2 * time.Second)
		at(map[string]int{"a": 6, "c": 0})
		for i := range 100 {
			queue.Add(requestIn("b", i))
		}
		at(map[string]int{"a": 6, "b": 2})
		time.Sleep(time.Minute)
		at(map[string]int{"a": 4, "b": 4})
		time.Sleep(time.Hour)
		at(map[string]int{"a": 0, "b": 0})
		if ended["a"] != 100 || ended["b"] != 100 {
			t.Errorf("passes: got %v, want 100 each", ended)
		}
		queue.ShutDown()
		all.Wait()
	})
	one := newTurns(1)
	if one.Push(requestIn("a", 0)); one.Len() != 1 {
		t.Errorf("requests for a single worker: got %d, want 1", one.Len())
	}
}

// Whatever comes in whatever order, each request that was added gets a pass that begins later, no two passes of
// one request run at once, and nothing is left behind.
func TestFairQueueLosesNothing(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			workers := 1 + random.IntN(6)
			turns := newTurns(workers)
			queue := &fairQueue{workqueue.NewTypedWithConfig(
				workqueue.TypedQueueConfig[reconcile.Request]{Queue: turns}), turns}
			var lock sync.Mutex
			added, seen, running := map[reconcile.Request]int{}, map[reconcile.Request]int{}, map[reconcile.Request]bool{}
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for {
						request, shutdown := queue.Get()
						if shutdown {
							return
						}
						lock.Lock()
						if running[request] {
							t.Errorf("seed %d: two passes of %s", seed, request)
						}
						running[request], seen[request] = true, added[request]
						pause := time.Duration(random.IntN(50)) * time.Millisecond
						lock.Unlock()
						time.Sleep(pause)
						lock.Lock()
						running[request] = false
						lock.Unlock()
						queue.Done(request)
					}
				})
			}
			for range 300 {
				lock.Lock()
				request := requestIn(string(rune('a'+random.IntN(4))), random.IntN(5))
				added[request]++
				pause := time.Duration(random.IntN(5)) * time.Millisecond
				lock.Unlock()
				queue.Add(request)
				time.Sleep(pause)
			}
			time.Sleep(time.Minute)
			lock.Lock()
			for request, n := range added {
				if seen[request] != n {
					t.Errorf("seed %d: %s was added %d times, its last pass saw %d", seed, request, n, seen[request])
				}
			}
			lock.Unlock()
			turns.mu.Lock()
			if len(turns.tenants) > 0 || len(turns.order) > 0 {
				t.Errorf("seed %d: %d tenants are left", seed, len(turns.tenants))
			}
			turns.mu.Unlock()
			queue.ShutDown()
			all.Wait()
		})
	}
}
