package restart

import (
	"context"
	"fmt"
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
	"github.com/afloat-project/afloat/internal/kinds/podprobemarker"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// PPM-121 (part): a container hangs, and so does its preStop hook, which waits for what the container does. Its pod has a grace
// period of 15 minutes, after which kubelet would restart it for its liveness probe. The node daemon runs that probe, and
// the manager makes a request for each ten minutes: the container is restarted, too, and not only drained again and again.
func TestALivenessProbeRestartsAContainerWhoseHookHangs(t *testing.T) {
	for name, grace := range map[string]int64{"five minutes": 300, "a quarter of an hour": 900} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
					Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "a",
						Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 2 * grace}}}}}}}
				rt := &twoPods{containers: []runtime.Container{run("a", 0)}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				api, r := daemon(rt, clock.RealClock{}, pod)
				var current *appsv1beta1.ContainerRecreateRequest
				stopped := func() int {
					rt.mu.Lock()
					defer rt.mu.Unlock()
					return len(rt.stopped)
				}
				for n, end := 0, time.Now().Add(3*time.Hour); time.Now().Before(end) && stopped() == 0; {
					if current == nil { // the manager asks for a restart, as long as the probe fails
						n++
						current = (&podprobemarker.Restart{Pod: pod, Container: "a"}).Request()
						filled := asked(fmt.Sprint(current.Name, n), 0, 0, []string{"a"}, states(), fresh)
						filled.CreationTimestamp, filled.Spec.ActiveDeadlineSeconds = metav1.Now(), current.Spec.ActiveDeadlineSeconds
						filled.Spec.Strategy.TerminationGracePeriodSeconds = &grace
						if current = filled; api.Create(ctx, current) != nil {
							t.Fatal("the request is not made")
						}
					} else if time.Since(current.CreationTimestamp.Time) > time.Duration(*current.Spec.ActiveDeadlineSeconds)*time.Second+time.Minute {
						if err := api.Delete(ctx, current); client.IgnoreNotFound(err) != nil { // after its deadline and ttlSecondsAfterFinished
							t.Fatal(err)
						}
						current = nil
					}
					if _, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(poll)
				}
				if stopped() == 0 {
					t.Error("within three hours, the container is not stopped")
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}
