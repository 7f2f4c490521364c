package restart

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
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

// A tenant has 60 pods on a node, in two namespaces, and makes as many requests for each as admission lets him, ten. A
// client of the daemon may send five requests a second to the API server. Two requests for a pod of another tenant, made
// a second later, must have a phase within a minute, as the manager completes them otherwise: "daemon has not responded
// for a long time" (CRR-060, CRR-093).
func TestRequestsOfOneTenantKeepNoneOfAnotherFromBeingAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, each = 60, 10
		namespace := func(i int) string { return fmt.Sprintf("hostile-%d", i%2) }
		scheme := k8sruntime.NewScheme()
		_, _ = corev1.AddToScheme(scheme), appsv1beta1.AddToScheme(scheme)
		n := &tenants{releaseOrphans: make(chan struct{}), called: make(chan struct{}, 1), stopped: map[string]time.Duration{}}
		var objects []client.Object
		var asked []reconcile.Request
		add := func(namespace string, i, requests int) {
			name := fmt.Sprintf("p%d", i)
			uid := types.UID(namespace + name)
			id := "containerd://" + string(uid)
			n.containers = append(n.containers,
				runtime.Container{ID: id, Name: "app", PodNamespace: namespace, PodName: name, PodUID: string(uid), Running: true})
			objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}})
			for k := range requests {
				object := &appsv1beta1.ContainerRecreateRequest{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, k), UID: types.UID(fmt.Sprintf("%s-%d", uid, k)),
						Labels: map[string]string{pub.RecreateActive: "true", pub.RecreatePodUID: string(uid)}},
					Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: name,
						Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "app",
							StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{ContainerID: id}}}}}
				objects, asked = append(objects, object), append(asked, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
			}
		}
		for i := range pods {
			add(namespace(i), i, each)
		}
		add("shop", 0, 2)
		api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1beta1.ContainerRecreateRequest{}).
			WithObjects(objects...).Build()
		live := func() client.Client {
			limit := flowcontrol.NewTokenBucketRateLimiter(5, 10) // of the client library, for one kind
			return interceptor.NewClient(api, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
					if err := limit.Wait(ctx); err != nil {
						return err
					}
					return c.Get(ctx, key, object, opts...)
				},
				SubResourcePatch: func(ctx context.Context, c client.Client, of string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if err := limit.Wait(ctx); err != nil {
						return err
					}
					return c.SubResource(of).Patch(ctx, object, patch, opts...)
				}})
		}
		r := &reconciler{requests: api, live: live(), pods: api, clock: clock.RealClock{},
			runtimeOf: func(string) (Runtime, error) { return n, nil },
			stopper:   &stop.Stopper{Events: record.NewFakeRecorder(10000), Clock: clock.RealClock{}, Stops: stop.NewStops()}}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		serve := func(queue workqueue.TypedRateLimitingInterface[reconcile.Request], workers int, by reconcile.Reconciler) {
			for range workers {
				all.Go(func() {
					for {
						key, over := queue.Get()
						if over {
							return
						}
						result, err := by.Reconcile(ctx, key)
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
		}
		queue := func(workers int) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			o := options(workers)
			return o.NewQueue("", o.RateLimiter)
		}
		restarts, answering := queue(workers), queue(1)
		r.wake = restarts.Add
		serve(restarts, workers, r)
		serve(answering, 1, answers(r, live()))
		victim := asked[len(asked)-1] // the request for the same pod before it is under way first
		for i := range pods {
			restarts.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace(i), Name: fmt.Sprintf("p%d", i)}})
		}
		for _, request := range asked[:len(asked)-2] {
			answering.AddAfter(request, answerAfter)
		}
		time.Sleep(time.Second)
		begin := time.Now()
		restarts.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "p0"}})
		for _, victim := range asked[len(asked)-2:] {
			answering.AddAfter(victim, answerAfter)
		}
		now := &appsv1beta1.ContainerRecreateRequest{}
		for now.Status.Phase == "" && time.Since(begin) < 10*time.Minute {
			time.Sleep(time.Second)
			if err := api.Get(t.Context(), victim.NamespacedName, now); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("the request of another tenant was answered after %s; the manager waits for a minute", took)
		}
		close(n.releaseOrphans)
		cancel()
		restarts.ShutDown()
		answering.ShutDown()
		all.Wait()
		synctest.Wait()
	})
}
