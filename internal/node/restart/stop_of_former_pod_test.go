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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// hooked is a runtime whose hooks take ten minutes, and which counts them.
type hooked struct {
	twoPods
	count sync.Mutex
	hooks []string
}

func (h *hooked) Exec(ctx context.Context, id string, _ []string, _ time.Duration) error {
	h.count.Lock()
	h.hooks = append(h.hooks, id)
	h.count.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Minute):
	}
	return nil
}

// CRR-091 (part): a container of a pod is being stopped, and its preStop hook takes ten minutes. Somebody deletes the pod without grace, and the
// one that replaces it under its name restarts a container, too, while the manager is away and has not completed the request for
// the former pod. The hook of the former one does not run a second time beside itself.
func TestTheStopOfASuccessorLetsNoHookOfTheFormerPodRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hour := int64(3600)
		of := func(uid string, hook *corev1.ExecAction) (*appsv1beta1.ContainerRecreateRequest, runtime.Container) {
			c := run("a", 0)
			c.ID, c.PodUID = "containerd://a-of-"+uid, uid
			r := asked("of-"+uid, 0, 0, []string{"a"}, states(), fresh)
			r.Labels[pub.RecreatePodUID] = uid
			r.Spec.Strategy.TerminationGracePeriodSeconds = &hour
			r.Spec.Containers[0].StatusContext.ContainerID = c.ID
			if hook != nil {
				r.Spec.Containers[0].PreStop = &appsv1beta1.ProbeHandler{Exec: hook}
			}
			return r, c
		}
		former, old := of("former", &corev1.ExecAction{Command: []string{"drain"}})
		next, successor := of("successor", nil)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "successor"},
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &hour, Containers: []corev1.Container{{Name: "a"}}}}
		rt := &hooked{twoPods: twoPods{containers: []runtime.Container{old, successor}}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		api, r := daemon(rt, clock.RealClock{}, former)
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
		if err := api.Create(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if err := api.Create(ctx, next); err != nil {
			t.Fatal(err)
		}
		passes(20)
		rt.mu.Lock()
		if !slices.Contains(rt.stopped, successor.ID) {
			t.Errorf("the container of the successor is not stopped")
		}
		rt.mu.Unlock()
		rt.count.Lock()
		if got, want := rt.hooks, []string{old.ID}; !slices.Equal(got, want) {
			t.Errorf("hooks that began within a minute: got %q, want %q", got, want)
		}
		rt.count.Unlock()
		cancel()
		synctest.Wait()
	})
}
