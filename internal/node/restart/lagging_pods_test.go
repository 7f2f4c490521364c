package restart

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/afloat-project/afloat/internal/platform/slim"
)

// A pod was deleted and made again under its name (StatefulSet), and its container is restarted on request. The watch of
// pods is behind (a stuck watch cache takes up to a minute to be noticed): the daemon's cache shows the former pod, or
// none. The API server has the pod. Its sleep hook, which no request can carry (CRR-040), has to run nevertheless, and a
// hook by HTTP needs its address (CRR-104).
func TestHooksRunWhileTheCacheOfPodsIsBehind(t *testing.T) {
	pod := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: uid},
			Status: corev1.PodStatus{PodIP: "10.0.0.1"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "a", Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}},
				{Name: "b"}}}}
	}
	former := pod("former")
	if _, err := slim.NodePod(former); err != nil {
		t.Fatal(err)
	}
	early := pod("u")
	early.Status.PodIP = ""
	for name, cache := range map[string]*fake.ClientBuilder{
		"the former pod": fake.NewClientBuilder().WithObjects(former), "no pod": fake.NewClientBuilder(),
		"the pod without its address": fake.NewClientBuilder().WithObjects(early),
	} {
		r := &reconciler{pods: cache.Build(), live: fake.NewClientBuilder().WithObjects(pod("u")).Build()}
		a := run("a", 0)
		found, err := r.withHook(t.Context(), request(), "a")
		if err != nil {
			t.Fatal(err)
		}
		order := r.order(request(), found, &a)
		if order.Hook == nil || order.Hook.Sleep == nil {
			t.Errorf("the cache shows %s: hook of the stop: got %v, want the pod's, which sleeps", name, order.Hook)
		}
		if order.PodIP != "10.0.0.1" {
			t.Errorf("the cache shows %s: address for hooks: got %q, want that of the pod", name, order.PodIP)
		}
	}
}
