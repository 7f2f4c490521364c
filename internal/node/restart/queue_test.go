package restart

import (
	"context"
	"fmt"
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

// CRR-091 (part): restarts that wait for other stops of their namespace send no requests to the API server
// meanwhile: all tenants share the few requests per second that a daemon may send.
func TestRestartsThatWaitForTheirNamespaceSendNothing(t *testing.T) {
	scheme := k8sruntime.NewScheme()
	_, _ = corev1.AddToScheme(scheme), appsv1beta1.AddToScheme(scheme)
	n := &tenants{releaseOrphans: make(chan struct{}), stopped: map[string]time.Duration{}}
	uid, id := types.UID("hostilep"), "containerd://hostilep"
	n.containers = []runtime.Container{{ID: id, Name: "app", PodNamespace: "hostile", PodName: "p", PodUID: string(uid), Running: true}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1beta1.ContainerRecreateRequest{}).WithObjects(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: "p", UID: uid},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}},
		&appsv1beta1.ContainerRecreateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: "restart", UID: "r",
				Labels: map[string]string{pub.RecreateActive: "true", pub.RecreatePodUID: string(uid)}},
			Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "p", Strategy: &appsv1beta1.ContainerRecreateRequestStrategy{},
				Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "app",
					StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{ContainerID: id}}}}}).Build()
	asked := 0
	live := interceptor.NewClient(api,
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object,
			o ...client.GetOption) error {
			asked++
			return c.Get(ctx, key, object, o...)
		}})
	woken := make(chan reconcile.Request, 1)
	r := &reconciler{requests: api, live: live, pods: live, clock: clock.RealClock{},
		runtimeOf: func(string) (Runtime, error) { return n, nil },
		wake:      func(key reconcile.Request) { woken <- key },
		stopper:   &stop.Stopper{Events: record.NewFakeRecorder(1000), Clock: clock.RealClock{}, Stops: stop.NewStops()}}
	ended := make(chan error, stop.Most)
	for i := range stop.Most {
		other := runtime.Container{ID: fmt.Sprintf("containerd://hostile-%d", i), PodNamespace: "hostile"}
		if !r.stopper.Start(t.Context(), n, stop.Request{Container: other, Check: func(context.Context) error { return nil }},
			func(err error) { ended <- err }) {
			t.Fatalf("stop %d does not begin", i)
		}
	}
	key := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "hostile", Name: "p"}}
	pass := func() reconcile.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	for i := 0; pass().RequeueAfter < poll; i++ { // until everything before the stop is recorded
		if i == 10 {
			t.Fatal("it does not come to wait")
		}
	}
	asked = 0
	for range 5 {
		if result := pass(); result.RequeueAfter != poll {
			t.Errorf("the request is looked at again after %s, want %s", result.RequeueAfter, poll)
		}
	}
	if asked > 0 {
		t.Errorf("requests to the API server of 5 rounds that wait: got %d, want 0", asked)
	}
	close(n.releaseOrphans)
	for range stop.Most {
		if err := <-ended; err != nil {
			t.Errorf("a stop that was under way: %v", err)
		}
	}
	pass()
	<-woken
	if n.stops("hostile") != stop.Most+1 {
		t.Errorf("containers that were stopped: got %d, want %d", n.stops("hostile"), stop.Most+1)
	}
}
