package restart

import (
	"context"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
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

// annotated is a runtime that tells of each container with the hook that kubelet recorded: the one that runs and, as
// kubelet keeps it, the one before.
type annotated struct{ *tenants }

func (a annotated) Containers(_ context.Context, uid string) ([]runtime.Container, error) {
	var list []runtime.Container
	for n := range 2 {
		list = append(list, runtime.Container{ID: fmt.Sprintf("containerd://%s-%d", uid, n), Name: "app", PodNamespace: "hostile",
			PodName: uid, PodUID: uid, Running: n == 1, Exited: n == 0, RestartCount: int32(n),
			Annotations: map[string]string{runtime.AnnotationPreStop: strings.Repeat("x", 1300<<10)}})
	}
	return list, nil
}

// A tenant restarts 32 pods of a node whose preStop hook is as large as the API server stores it. The workers, which all
// wait for the few requests per second that the daemon may send, must not keep what the runtime told of the containers
// meanwhile: the daemon has 128 MiB, and would be killed, with all pulls, probes and restarts of the others on the node.
func TestWorkersThatWaitForTheAPIServerDoNotKeepHooks(t *testing.T) {
	scheme := k8sruntime.NewScheme()
	_, _ = corev1.AddToScheme(scheme), appsv1beta1.AddToScheme(scheme)
	var objects []client.Object
	var keys []reconcile.Request
	for i := range workers {
		uid := types.UID(fmt.Sprintf("p%d", i))
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: string(uid), UID: uid},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", // what slim.NodePod leaves of a hook that is too large
				Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}}}}}, &appsv1beta1.ContainerRecreateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: "restart-" + string(uid), UID: "r" + uid,
				Labels: map[string]string{pub.RecreateActive: "true", pub.RecreatePodUID: string(uid)}},
			Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: string(uid),
				Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "app",
					StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{
						ContainerID: fmt.Sprintf("containerd://%s-1", uid), RestartCount: 1}}}},
			Status: appsv1beta1.ContainerRecreateRequestStatus{Phase: recreating, ContainerRecreateStates: []State{{Name: "app", Phase: pending}}}})
		keys = append(keys, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "hostile", Name: string(uid)}})
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1beta1.ContainerRecreateRequest{}).
		WithObjects(objects...).Build()
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan struct{}, workers)
	live := interceptor.NewClient(api, interceptor.Funcs{ // its limiter lets nobody pass for now
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if _, pod := object.(*corev1.Pod); !pod {
				return c.Get(ctx, key, object, opts...)
			}
			waiting <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}})
	r := &reconciler{requests: api, live: live, pods: api, clock: clock.RealClock{}, wake: func(reconcile.Request) {},
		runtimeOf: func(string) (Runtime, error) { return annotated{&tenants{}}, nil },
		stopper:   &stop.Stopper{Events: record.NewFakeRecorder(1000), Clock: clock.RealClock{}, Stops: stop.NewStops()}}
	used := func() int {
		goruntime.GC()
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := used()
	var all sync.WaitGroup
	for _, key := range keys {
		all.Go(func() { _, _ = r.Reconcile(ctx, key) })
	}
	for range keys {
		select {
		case <-waiting:
		case <-time.After(30 * time.Second):
			t.Fatal("not all workers read their pod")
		}
	}
	if kept := used() - before; kept > 64<<20 {
		t.Errorf("%d workers that wait keep %d MiB, the limit of the daemon is 128 MiB", len(keys), kept>>20)
	}
	cancel()
	all.Wait()
}
