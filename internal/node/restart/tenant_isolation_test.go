package restart

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
	"github.com/afloat-project/afloat/internal/platform/pacing"
)

// tenants is a node with one container in each of many pods. The containers of namespace "hostile" do not end
// until the test ends them.
type tenants struct {
	containers     []runtime.Container
	releaseOrphans chan struct{}
	called         chan struct{} // has room for one, and gets it when a stop is recorded

	mu      sync.Mutex
	stopped map[string]time.Duration // by namespace and pod: the grace period that the runtime got
	most    int                      // containers of "hostile" that were being stopped at once
	now     int
}

func (n *tenants) Containers(_ context.Context, uid string) (list []runtime.Container, err error) {
	for _, c := range n.containers {
		if c.PodUID == uid {
			list = append(list, c)
		}
	}
	return list, nil
}

func (n *tenants) Status(context.Context, string) (runtime.Status, error) {
	return runtime.Status{}, runtime.ErrNotFound
}

func (n *tenants) Exec(context.Context, string, []string, time.Duration) error {
	return nil
}

func (n *tenants) Stop(ctx context.Context, id string, grace time.Duration) error {
	n.mu.Lock()
	pod := id[len("containerd://"):]
	n.stopped[pod] = grace
	n.mu.Unlock()
	select {
	case n.called <- struct{}{}:
	default:
	}
	if len(pod) < 7 || pod[:7] != "hostile" {
		return nil
	}
	n.count(1)
	defer n.count(-1)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-n.releaseOrphans:
		return nil
	}
}

func (n *tenants) count(change int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now += change
	n.most = max(n.most, n.now)
}

func (n *tenants) stops(namespace string) (pods int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for pod := range n.stopped {
		if len(pod) > len(namespace) && pod[:len(namespace)] == namespace {
			pods++
		}
	}
	return pods
}

// until waits for a condition, which only stops can make true.
func (n *tenants) until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.After(30 * time.Second); !condition(); {
		select {
		case <-n.called:
		case <-end:
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// CRR-091, CRR-102 (part): one tenant restarts more pods of a node at once than the daemon has workers, with
// an hour for each to end. The restart of another tenant begins at once, and the stops of the first tenant
// never exceed the bound of a namespace.
func TestRestartsOfOneTenantDoNotHoldUpThoseOfAnother(t *testing.T) {
	scheme := k8sruntime.NewScheme()
	_, _ = corev1.AddToScheme(scheme), appsv1beta1.AddToScheme(scheme)
	n := &tenants{releaseOrphans: make(chan struct{}), called: make(chan struct{}, 1), stopped: map[string]time.Duration{}}
	hour, own := int64(3600), int64(20)
	var objects []client.Object
	add := func(namespace string, i int) {
		name := fmt.Sprintf("p%d", i)
		uid := types.UID(namespace + name)
		id := "containerd://" + string(uid)
		n.containers = append(n.containers,
			runtime.Container{ID: id, Name: "app", PodNamespace: namespace, PodName: name, PodUID: string(uid), Running: true})
		objects = append(objects,
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
				Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &own, Containers: []corev1.Container{{Name: "app"}}}},
			&appsv1beta1.ContainerRecreateRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "restart-" + name, UID: "r" + uid,
					Labels: map[string]string{pub.RecreateActive: "true", pub.RecreatePodUID: string(uid)}},
				Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: name,
					Strategy: &appsv1beta1.ContainerRecreateRequestStrategy{TerminationGracePeriodSeconds: &hour},
					Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "app",
						StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{ContainerID: id}}}}})
	}
	const hostile = workers + 8
	for i := range hostile {
		add("hostile", i)
	}
	add("shop", 0)
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1beta1.ContainerRecreateRequest{}).
		WithObjects(objects...).Build()
	r := &reconciler{requests: api, live: api, pods: api, clock: clock.RealClock{},
		runtimeOf: func(string) (Runtime, error) { return n, nil },
		stopper:   &stop.Stopper{Events: record.NewFakeRecorder(1000), Clock: clock.RealClock{}, Stops: stop.NewStops()}}
	ctx, cancel := context.WithCancel(t.Context())
	queue := workqueue.NewTypedRateLimitingQueue(pacing.RetryLimiter[reconcile.Request]())
	var all sync.WaitGroup
	defer func() {
		cancel()
		queue.ShutDown()
		all.Wait()
	}()
	for range workers {
		all.Go(func() {
			for {
				key, over := queue.Get()
				if over {
					return
				}
				result, err := r.Reconcile(ctx, key)
				switch {
				case err != nil:
					queue.AddRateLimited(key)
				case result.RequeueAfter > 0:
					queue.AddAfter(key, result.RequeueAfter)
				}
				queue.Done(key)
			}
		})
	}
	r.wake = queue.Add
	key := func(namespace string, i int) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("p%d", i)}}
	}
	for i := range hostile {
		queue.Add(key("hostile", i))
	}
	n.until(t, "the hostile containers are being stopped", func() bool { return n.stops("hostile") >= workers })
	begin := time.Now()
	queue.Add(key("shop", 0))
	n.until(t, "the container of another tenant is stopped", func() bool { return n.stops("shop") == 1 })
	t.Logf("the restart of another tenant began after %s", time.Since(begin).Round(time.Millisecond))
	n.mu.Lock()
	if n.most > stop.Most {
		t.Errorf("stops of one namespace at once: got %d, want %d at most", n.most, stop.Most)
	}
	if grace := n.stopped["shopp0"]; grace != 20*time.Second {
		t.Errorf("grace period of the other tenant's container: got %s, want 20s", grace)
	}
	n.mu.Unlock()
	close(n.releaseOrphans)
	n.until(t, "the others of the first tenant have their turn", func() bool { return n.stops("hostile") == hostile })
}
