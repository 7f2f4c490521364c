package restart

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// CRR-091 (part): "Requests for a pod that is gone, and for the one that replaced it under its name, have nothing to do with each other." The containers of
// the former one were of a runtime that does not answer any more; its request is not completed yet. The one for its successor, whose
// runtime answers, begins.
func TestARuntimeThatDoesNotAnswerForTheFormerPodDoesNotHoldUpItsSuccessor(t *testing.T) {
	old, successor := run("a", 0), run("a", 0)
	old.ID, old.PodUID, successor.PodUID = "cri-o://a-0", "former", "successor"
	former := asked("former", 0, 0, []string{"a"}, states(), fresh)
	former.Labels[pub.RecreatePodUID], former.Spec.Containers[0].StatusContext.ContainerID = "former", old.ID
	next := asked("next", time.Minute, 0, []string{"a"}, states(), fresh)
	next.Labels[pub.RecreatePodUID] = "successor"
	rt := &twoPods{containers: []runtime.Container{old, successor}}
	clk, woken := testclock.NewFakeClock(epoch.Add(2*time.Minute)), make(chan struct{}, 1)
	_, r := daemon(rt, clk, former, next, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "successor"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}})
	r.runtimeOf = func(id string) (Runtime, error) {
		if strings.HasPrefix(id, "cri-o:") {
			return nil, runtime.ErrUnavailable
		}
		return rt, nil
	}
	r.wake = func(reconcile.Request) { woken <- struct{}{} }
	key := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}}
	for range 20 {
		_, _ = r.Reconcile(t.Context(), key)
		if _, underway := r.stops.Load(key.NamespacedName); underway {
			<-woken
			break
		}
		clk.Step(poll)
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if !slices.Contains(rt.stopped, successor.ID) {
		t.Errorf("containers that were stopped within a minute: got %q, want %s", rt.stopped, successor.ID)
	}
}
