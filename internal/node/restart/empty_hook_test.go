package restart

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/platform/slim"
)

// A request was created with preStop: {} (a client that sends empty objects, which admission lets pass, or the
// reference's webhook for a sleep hook). The hook of the pod has to run nevertheless (CRR-104, CRR-040).
func TestEmptyHookOfARequestHidesThatOfThePod(t *testing.T) {
	w, _ := quiet(t)
	r := request(func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.Containers[0].PreStop = &appsv1beta1.ProbeHandler{}
	})
	c := run("a", 0)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a",
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 15}}}}}}}
	if o := w.r.order(r, pod, &c); o.Hook == nil || o.Hook.Sleep == nil {
		t.Errorf("hook that is run: got %+v, want that of the pod, which sleeps for 15 s", o.Hook)
	}
	pod.Spec.Containers[0].Lifecycle = nil
	if o := w.r.order(r, pod, &c); o.Hook != nil {
		t.Errorf("hook of a container without hook: got %+v, want none (it fails with a Warning event)", o.Hook)
	}
}

// CRR-131: the container ended, and the kubelet does not start it again. The pod is larger than what the daemon
// keeps of pods, so the cache has only its identity. The request ends nevertheless.
func TestLargePodWhoseContainerStaysStopped(t *testing.T) {
	whole := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	for range 250 {
		whole.Spec.InitContainers = append(whole.Spec.InitContainers, corev1.Container{Name: "i"})
	}
	cached := whole.DeepCopy()
	if _, err := slim.NodePod(cached); err != nil {
		t.Fatal(err)
	}
	w, now := quiet(t, func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Containers = r.Spec.Containers[:1] })
	before := &corev1.Pod{}
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(whole), before); err != nil {
		t.Fatal(err)
	}
	whole.ResourceVersion = before.ResourceVersion
	if err := w.api.Update(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	w.r.pods = fake.NewClientBuilder().WithObjects(cached).Build()
	if err := w.rounds(3); err != nil {
		t.Fatal(err)
	}
	for range 100 { // the container ends when it is stopped, and no other one follows
		w.clock.Step(time.Minute)
		if err := w.rounds(1); err != nil {
			t.Fatal(err)
		}
	}
	if s := now().Status; s.CompletionTime == nil {
		t.Errorf("100 minutes after its container ended for good the request is not completed: %+v", s)
	}
}
