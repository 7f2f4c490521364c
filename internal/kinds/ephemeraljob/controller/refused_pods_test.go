package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob/ephemeraljobtest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// testCluster is a cluster with one job and its pods, caches that keep up, and what the manager told.
type testCluster struct {
	t *testing.T
	*simulation.Cluster
	r      *Reconciler
	loop   *reconcile.Loop
	events []string
}

// Event implements reconcile.Recorder.
func (b *testCluster) Event(_ client.Object, kind, reason, message string) {
	b.events = append(b.events, fmt.Sprintf("%s %s: %s", kind, reason, message))
}

func newTestCluster(t *testing.T, job *appsv1alpha1.EphemeralJob, pods ...*corev1.Pod) *testCluster {
	b := &testCluster{t: t, Cluster: simulation.New(1)}
	b.Slim = slim.Any
	b.Begin(ephemeraljobtest.Noon)
	job.ResourceVersion = ""
	b.Store(jobKey, job)
	for _, pod := range pods {
		pod.ResourceVersion = ""
		b.Store(podKey(pod.Name), pod)
	}
	b.start()
	return b
}

// start starts a manager that remembers nothing.
func (b *testCluster) start() {
	b.r = &Reconciler{API: b.API(), Events: b, Pods: b.Pods(), meters: newMeters()}
	b.loop = b.r.controller().Loop(nil)
}

// pass makes a pass with caches that show all, and returns when the next one is due.
func (b *testCluster) pass() time.Duration {
	b.Deliver(b.Undelivered())
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "dump"}}
	result, err := b.loop.Reconcile(b.t.Context(), request)
	if err != nil {
		return b.loop.BackOff().When(request)
	}
	return result.RequeueAfter
}

// let passes be made whenever they are due, for so long; kubelet ends each container at once.
func (b *testCluster) let(d time.Duration) {
	for end := b.Now().Add(d); b.Now().Before(end); {
		wait := b.pass()
		for _, object := range b.List("Pod", false) {
			pod := object.(*corev1.Pod)
			if ephemeraljob.Treated(pod, "job") && len(pod.Status.EphemeralContainerStatuses) == 0 {
				b.Change(podKey(pod.Name), func(o client.Object) {
					o.(*corev1.Pod).Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "dump", State: *ephemeraljobtest.Ended(0)}}
				})
				wait = 0
			}
		}
		b.Pass(max(wait, time.Millisecond))
	}
}

func (b *testCluster) treated() (names []string) {
	for _, object := range b.List("Pod", false) {
		if pod := object.(*corev1.Pod); ephemeraljob.Treated(pod, "job") {
			names = append(names, pod.Name)
		}
	}
	return names
}

// A pod that a policy protects, or for which a webhook fails, does not keep the others waiting: it comes last
// (EJ-045 (part), EJ-047 (part)).
func TestOneRefusedPodHoldsNoOthers(t *testing.T) {
	for name, answer := range map[string]error{
		"a policy":             apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("protected")),
		"a webhook that fails": apierrors.NewInternalError(errors.New("failed calling webhook")),
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestCluster(t, ephemeraljobtest.Job(), ephemeraljobtest.Pod("a"), ephemeraljobtest.Pod("b"), ephemeraljobtest.Pod("c"))
			tried := 0
			b.Answer = func(r *simulation.Request) error {
				if r.Subresource == subresource && r.Key.Name == "a" {
					tried++
					return answer
				}
				return nil
			}
			b.let(time.Minute)
			if got := strings.Join(b.treated(), " "); got != "b c" {
				t.Errorf("treated: %q", got)
			}
			if tried < 3 || tried > 10 { // with pauses that double
				t.Errorf("tried %d times", tried)
			}
			b.Answer = nil
			b.let(2 * time.Minute)
			if job, _ := b.Get(jobKey).(*appsv1alpha1.EphemeralJob); job == nil {
				t.Errorf("job: got nil, want a value\n%+v", job.Status)
			} else if job.Status.Phase != appsv1alpha1.EphemeralJobSucceeded {
				t.Errorf("phase: got %q, want %q\n%+v", job.Status.Phase, appsv1alpha1.EphemeralJobSucceeded, job.Status)
			}
		})
	}
}

// A manager that starts with caches which do not show yet what the one before it wrote takes no pod for one
// that is gone (EJ-038 (part)).
func TestStartWithCachesThatLag(t *testing.T) {
	job := ephemeraljobtest.Job(func(job *appsv1alpha1.EphemeralJob) {
		job.Status.Succeeded, job.Status.Running, job.Status.Matches = 1, 1, 2
		job.Status.StartTime = &metav1.Time{Time: ephemeraljobtest.Noon}
	})
	b := newTestCluster(t, job, ephemeraljobtest.Pod("a", ephemeraljobtest.Treated("job", ephemeraljobtest.Ended(0))), ephemeraljobtest.Pod("b"))
	b.Deliver(b.Undelivered())
	b.Change(podKey("b"), func(o client.Object) { ephemeraljobtest.Treated("job", nil)(o.(*corev1.Pod)) })
	if _, err := b.loop.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "dump"}}); err != nil {
		t.Fatal(err)
	}
	b.let(time.Minute)
	got, _ := b.Get(jobKey).(*appsv1alpha1.EphemeralJob)
	if got.Status.Phase != appsv1alpha1.EphemeralJobSucceeded {
		t.Errorf("phase: got %q, want %q\n%+v", got.Status.Phase, appsv1alpha1.EphemeralJobSucceeded, got.Status)
	}
	if got.Status.Succeeded != 2 {
		t.Errorf("succeeded: got %d, want 2\n%+v", got.Status.Succeeded, got.Status)
	}
}
