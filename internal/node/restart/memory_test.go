package restart

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
)

// Two namespaces restart 32 pods each on a node, whose containers take an hour to end. Hooks and requests are as large
// as the API server stores them. The daemon, which has 128 MiB, must not keep them until the stops have ended.
func TestStopsUnderWayKeepNeitherRequestsNorHooks(t *testing.T) {
	scheme := k8sruntime.NewScheme()
	_, _ = corev1.AddToScheme(scheme), appsv1beta1.AddToScheme(scheme)
	n := &tenants{releaseOrphans: make(chan struct{}), called: make(chan struct{}, 1)}
	n.stopped = map[string]time.Duration{}
	var objects []client.Object
	var keys []reconcile.Request
	hour := int64(3600)
	for _, namespace := range []string{"hostile1", "hostile2"} {
		for i := range stop.Most {
			name := fmt.Sprintf("p%d", i)
			uid := types.UID(namespace + name)
			id := "containerd://" + string(uid)
			n.containers = append(n.containers,
				runtime.Container{ID: id, Name: "app", PodNamespace: namespace, PodName: name, PodUID: string(uid), Running: true})
			objects = append(objects,
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
					Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &hour, Containers: []corev1.Container{{Name: "app",
						// what slim.NodePod leaves of a hook that is too large
						Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}}}}},
				&appsv1beta1.ContainerRecreateRequest{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "restart-" + name, UID: "r" + uid,
						Labels: map[string]string{pub.RecreateActive: "true", pub.RecreatePodUID: string(uid)}},
					Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: name,
						Strategy: &appsv1beta1.ContainerRecreateRequestStrategy{TerminationGracePeriodSeconds: &hour},
						Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "app",
							StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{ContainerID: id}}}}})
			keys = append(keys, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
		}
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1beta1.ContainerRecreateRequest{}).
		WithObjects(objects...).Build()
	live := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, object, opts...)
			switch o := object.(type) {
			case *corev1.Pod:
				o.Spec.Containers[0].Lifecycle.PreStop.Exec = &corev1.ExecAction{Command: []string{"sh", "-c", strings.Repeat("x", 1300<<10)}}
			case *appsv1beta1.ContainerRecreateRequest:
				o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("x", 1300<<10), UID: "o"}}
			}
			return err
		}})
	r := &reconciler{requests: api, live: live, pods: api, clock: clock.RealClock{}, wake: func(reconcile.Request) {},
		runtimeOf: func(string) (Runtime, error) { return n, nil },
		stopper:   &stop.Stopper{Events: record.NewFakeRecorder(1000), Clock: clock.RealClock{}, Stops: stop.NewStops()}}
	used := func() int {
		goruntime.GC()
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := used()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 6 {
		for _, key := range keys {
			if _, err := r.Reconcile(ctx, key); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.until(t, "all are being stopped", func() bool { return n.stops("hostile") == len(keys) })
	if kept := used() - before; kept > 64<<20 {
		t.Errorf("%d stops under way keep %d MiB, the limit of the daemon is 128 MiB", len(keys), kept>>20)
	}
	goruntime.KeepAlive(r)
	cancel()
}
