// Package containerrecreatetest builds requests and their pods for tests of the plan and of the controller.
package containerrecreatetest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Noon is when the requests of the tests are created.
var Noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Request returns a request for two containers, created at noon and in progress.
func Request(changes ...func(*appsv1beta1.ContainerRecreateRequest)) *appsv1beta1.ContainerRecreateRequest {
	r := &appsv1beta1.ContainerRecreateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "shop",
			Name:              "restart",
			UID:               "r",
			ResourceVersion:   "1",
			CreationTimestamp: metav1.NewTime(Noon),
			Labels: map[string]string{
				pub.RecreateActive:   "true",
				pub.RecreateNodeName: "node-a",
				pub.RecreatePodUID:   "pod-1",
			},
		},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{
			PodName:  "web-7",
			Strategy: &appsv1beta1.ContainerRecreateRequestStrategy{},
			Containers: []appsv1beta1.ContainerRecreateRequestContainer{
				{
					Name: "app",
					StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{
						ContainerID:  "c://app-1",
						RestartCount: 1,
					},
				},
				{
					Name: "proxy",
					StatusContext: &appsv1beta1.ContainerRecreateRequestContainerContext{
						ContainerID: "c://proxy-1",
					},
				},
			},
		},
		Status: appsv1beta1.ContainerRecreateRequestStatus{
			Phase: appsv1beta1.ContainerRecreateRequestRecreating,
		},
	}
	for _, change := range changes {
		change(r)
	}

	return r
}

// Done completes the request.
func Done(r *appsv1beta1.ContainerRecreateRequest) {
	r.Status.Phase, r.Status.CompletionTime =
		appsv1beta1.ContainerRecreateRequestCompleted, &metav1.Time{Time: Noon}
}

// Held adds the finalizer of a request that holds its pod unready.
func Held(r *appsv1beta1.ContainerRecreateRequest) {
	r.Finalizers = []string{"other", pub.RecreateUnreadyAcquired}
}

// Grace asks for a grace period.
func Grace(r *appsv1beta1.ContainerRecreateRequest) {
	r.Spec.Strategy.UnreadyGracePeriodSeconds = new(int64(0))
}

// Deadline sets a deadline of 300 seconds.
func Deadline(r *appsv1beta1.ContainerRecreateRequest) {
	r.Spec.ActiveDeadlineSeconds = new(int64(300))
}

// Phase sets the phase.
func Phase(p appsv1beta1.ContainerRecreateRequestPhase) func(*appsv1beta1.ContainerRecreateRequest) {
	return func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Phase = p }
}

// Pod returns the pod, with its containers as they were when the request was created.
func Pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	started := corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(Noon.Add(-time.Hour))},
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-7", UID: "pod-1", ResourceVersion: "9"},
		Spec: corev1.PodSpec{
			NodeName:       "node-a",
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: pub.KruisePodReady}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: "True"},
				{Type: corev1.ContainersReady, Status: "True"},
				{Type: pub.KruisePodReady, Status: "True"},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "proxy", ContainerID: "c://proxy-1", State: started, Ready: true},
				{Name: "app", ContainerID: "c://app-1", RestartCount: 1, State: started, Ready: true},
			},
		},
	}

	for _, change := range changes {
		change(p)
	}

	return p
}

// Restarted changes the pod as if container app had been restarted.
func Restarted(p *corev1.Pod) { // by a node whose clock is behind
	p.Status.ContainerStatuses[1].ContainerID, p.Status.ContainerStatuses[1].RestartCount = "c://app-2", 2
}

// Succeeded sets the states of both containers to succeeded.
func Succeeded(r *appsv1beta1.ContainerRecreateRequest) {
	r.Status.ContainerRecreateStates = []appsv1beta1.ContainerRecreateRequestContainerRecreateState{
		{Name: "app", Phase: "Succeeded", IsKilled: true},
		{Name: "proxy", Phase: "Succeeded", IsKilled: true},
	}
}

// Recreatable returns a running pod whose containers have all sorts of hooks.
func Recreatable(changes ...func(*corev1.Pod)) *corev1.Pod {
	always, grace := corev1.ContainerRestartPolicyAlways, int64(45)
	hook := func(h corev1.LifecycleHandler) *corev1.Lifecycle { return &corev1.Lifecycle{PreStop: &h} }
	ports := []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: "TCP"}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-7", UID: "pod-1"},
		Spec: corev1.PodSpec{NodeName: "node-a", TerminationGracePeriodSeconds: &grace,
			InitContainers: []corev1.Container{{Name: "init"}, {Name: "native", RestartPolicy: &always}},
			Containers: []corev1.Container{
				{Name: "plain", Ports: ports,
					Lifecycle: &corev1.Lifecycle{
						PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"start"}}}}},
				{Name: "exec", Ports: ports, Lifecycle: hook(corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"stop"}}})},
				{Name: "http", Ports: ports,
					Lifecycle: hook(
						corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/stop", Port: intstr.FromString("http")}})},
				{Name: "tcp", Ports: ports,
					Lifecycle: hook(corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}})},
				{Name: "sleep", Ports: ports, Lifecycle: hook(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}})},
				{Name: "new"}, {Name: "unseen"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "new"}}},
	}
	for _, name := range []string{"plain", "exec", "http", "tcp", "sleep"} {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: name, ContainerID: "c://" + name, RestartCount: 2})
	}
	for _, name := range []string{"init", "native"} {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses,
			corev1.ContainerStatus{Name: name, ContainerID: "c://" + name})
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}
