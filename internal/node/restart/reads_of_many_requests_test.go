package restart

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
)

// inspecting counts the containers that were inspected.
type inspecting struct {
	*hanging
	inspected int
}

func (i *inspecting) Status(ctx context.Context, id string) (runtime.Status, error) {
	i.inspected++
	status, err := i.hanging.Status(ctx, id)
	status.ExitCode = 1
	return status, err
}

// CRR-091, CRR-093, ND-056: a tenant has as many requests as admission lets him, ten, for a pod whose container is in the back-off of a crash
// loop, and cannot be read from the cache: pods are not watched, or the pod is large. Before requests began side by side, each pass, every three
// seconds, read the pod once and inspected the container once, for the first of them. More requests need no more: the daemon may send
// five requests a second to the API server, of which ten such requests of two pods would take more than there are, for as long as the tenant likes.
func TestManyRequestsOfAPodReadItOnce(t *testing.T) {
	ended := run("a", 1)
	ended.Running, ended.Exited = false, true
	h := &inspecting{hanging: &hanging{containers: []runtime.Container{ended}}}
	scheme := k8sruntime.NewScheme()
	_, _ = corev1.AddToScheme(scheme), appsv1beta1.AddToScheme(scheme)
	objects := []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "a"}}}}}
	for n := range 10 {
		objects = append(objects, request(states(State{Name: "a", Phase: recreating, IsKilled: true}), func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Name, r.UID, r.Spec.Containers = fmt.Sprintf("r%d", n), types.UID(fmt.Sprint(n)), r.Spec.Containers[:1]
		}))
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1beta1.ContainerRecreateRequest{}).WithObjects(objects...).Build()
	reads := 0
	live := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, object, opts...)
		}})
	clk := testclock.NewFakeClock(epoch)
	r := &reconciler{requests: api, live: live, pods: live, clock: clk, wake: func(reconcile.Request) {},
		runtimeOf: func(string) (Runtime, error) { return h, nil },
		stopper:   &stop.Stopper{Events: record.NewFakeRecorder(100), Clock: clk, Stops: stop.NewStops(), Requester: "crr"}}
	result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	if reads > 1 || h.inspected > 1 {
		t.Errorf("one pass, which is repeated in %s: read from the API server %d times and inspected the container %d times, want once", result.RequeueAfter, reads, h.inspected)
	}
}
