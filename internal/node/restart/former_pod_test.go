package restart

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// twoPods is a runtime with the containers of a pod and of the one that replaced it under its name.
type twoPods struct {
	mu         sync.Mutex
	containers []runtime.Container
	stopped    []string
}

func (p *twoPods) Containers(_ context.Context, uid string) (list []runtime.Container, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.containers {
		if c.PodUID == uid {
			list = append(list, c)
		}
	}
	return list, nil
}

func (p *twoPods) Status(context.Context, string) (runtime.Status, error) {
	return runtime.Status{}, runtime.ErrNotFound
}

func (p *twoPods) Exec(context.Context, string, []string, time.Duration) error { return nil }

func (p *twoPods) Stop(_ context.Context, id string, _ time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = append(p.stopped, id)
	return nil
}

// PPM-121 (part), CRR-091 (part): the container of a pod hangs, and is being stopped for its liveness probe: its preStop hook sleeps for
// an hour. Somebody loses patience and deletes the pod. The one that replaces it under its name (StatefulSet) on the same
// node hangs, too: its liveness probe restarts it, and does not wait for the hook of a pod that is gone.
func TestTheHookOfAPodThatIsGoneDoesNotHoldUpTheRestartOfItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hour := int64(3600)
		pod := func(uid types.UID) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: uid},
				Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &hour, Containers: []corev1.Container{{Name: "a",
					Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: hour}}}}}}}
		}
		of := func(uid string) (*appsv1beta1.ContainerRecreateRequest, runtime.Container) {
			c := run("a", 0)
			c.ID, c.PodUID = "containerd://a-of-"+uid, uid
			r := asked("liveness-"+uid+"-a-0", 0, 0, []string{"a"}, states(), fresh)
			r.Labels[pub.RecreatePodUID] = uid
			r.Spec.Strategy.TerminationGracePeriodSeconds = &hour
			r.Spec.Containers[0].StatusContext.ContainerID = c.ID
			return r, c
		}
		former, old := of("former")
		rt := &twoPods{containers: []runtime.Container{old}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		api, r := daemon(rt, clock.RealClock{}, former, pod("former"))
		passes := func(n int) {
			t.Helper()
			for range n {
				if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(poll)
			}
		}
		passes(5)
		if _, begun := r.stops.Load(types.NamespacedName{Namespace: "ns", Name: "p"}); !begun {
			t.Fatal("the first stop does not begin")
		}
		// The manager completes the request and deletes it, kubelet removes the container.
		for _, gone := range []client.Object{former, pod("former")} {
			if err := api.Delete(ctx, gone); err != nil {
				t.Fatal(err)
			}
		}
		next, successor := of("successor")
		for _, made := range []client.Object{pod("successor"), next} {
			if err := api.Create(ctx, made); err != nil {
				t.Fatal(err)
			}
		}
		rt.mu.Lock()
		rt.containers = []runtime.Container{successor}
		rt.mu.Unlock()
		hook := false // the hook of the new pod sleeps, too: that its stop has begun is enough
		for range 180 {
			passes(1)
			found := &appsv1beta1.ContainerRecreateRequest{}
			if err := api.Get(ctx, client.ObjectKeyFromObject(next), found); err != nil {
				t.Fatal(err)
			}
			hook = hook || found.Status.Phase == recreating
		}
		if !hook && !slices.Contains(rt.stopped, successor.ID) {
			t.Error("nine minutes later, the request for the new pod has not begun")
		}
		cancel()
		synctest.Wait()
	})
}
