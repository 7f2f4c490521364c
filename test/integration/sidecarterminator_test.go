//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// jobPod makes a pod on a node of its own, whose main container has ended with 0 and whose sidecar, with
// these variables, still runs.
func jobPod(t *testing.T, name, nodeType string, change func(*corev1.Pod), variables ...corev1.EnvVar) *corev1.Pod {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + name, Labels: map[string]string{"type": nodeType}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{NodeName: node.Name, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "main", Image: "i"}, {Name: "log", Image: "i", Env: variables}}}}
	for _, object := range []client.Object{node, pod} {
		if err := kube.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = kube.Delete(context.Background(), object, client.GracePeriodSeconds(0)) })
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "main", ContainerID: "containerd://1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "containerd://1"}}},
		{Name: "log", ContainerID: "containerd://2", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	if change != nil {
		change(pod)
	}
	if err := kube.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// termination waits for a request of that name for the pod, which is filled in.
func termination(t *testing.T, pod *corev1.Pod, name string) *appsv1beta1.ContainerRecreateRequest {
	t.Helper()
	request := &appsv1beta1.ContainerRecreateRequest{}
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: pod.Namespace, Name: name}, request); err != nil {
			return err
		}
		if request.Labels[pub.RecreateNodeName] != pod.Spec.NodeName {
			return errors.New("it is not filled in")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return request
}

var stops = corev1.EnvVar{Name: pub.TerminateSidecarEnv, Value: "true"}

// TestSidecarTermination: the requests, phases and images that the manager writes are what an API server and
// admission take (JST-032, JST-033 (part), JST-035, JST-040 (part), JST-036 (part), JST-061 (part)).
func TestSidecarTermination(t *testing.T) {
	pod := jobPod(t, "counts", "", nil, stops)
	request := termination(t, pod, "sidecar-termination-"+string(pod.UID))
	owner := metav1.GetControllerOf(request)
	if owner == nil || owner.UID != pod.UID || owner.Kind != "Pod" || owner.Name != pod.Name {
		t.Errorf("owner of the request: got %+v, want pod %s", owner, pod.Name)
	}
	if request.Spec.PodName != pod.Name {
		t.Errorf("pod of the request: got %s, want %s", request.Spec.PodName, pod.Name)
	}
	if containers := request.Spec.Containers; len(containers) != 1 || containers[0].Name != "log" {
		t.Errorf("containers of the request: got %+v, want log alone", containers)
	}
	if !request.Spec.Strategy.ForceRecreate {
		t.Error("the request does not force the restart")
	}
	if policy := request.Spec.Strategy.FailurePolicy; policy != "Ignore" {
		t.Errorf("failure policy of the request: got %s, want Ignore", policy)
	}
	if seconds := *request.Spec.Strategy.TerminationGracePeriodSeconds; seconds != 30 {
		t.Errorf("grace period of the request: got %d s, want 30 s", seconds)
	}
	if request.Spec.ActiveDeadlineSeconds == nil {
		t.Error("the request has no deadline")
	}
	if request.Spec.TTLSecondsAfterFinished == nil {
		t.Error("the request stays for ever")
	}

	ignored := jobPod(t, "ignored", "", nil, stops, corev1.EnvVar{Name: pub.TerminateSidecarIgnoreExitEnv, Value: "true"})
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(ignored), ignored); err != nil {
			return err
		}
		for _, c := range ignored.Status.Conditions {
			if ignored.Status.Phase == corev1.PodSucceeded && c.Type == pub.SidecarTerminated && c.Status == "True" && c.Message != "" {
				return nil
			}
		}
		return fmt.Errorf("%+v", ignored.Status)
	}); err != nil {
		t.Fatal(err)
	}

	// JST-035: admission takes a request for a pod that has ended, because of the condition, and only because
	// of it.
	late := jobPod(t, "late", "", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		p.Status.Conditions = []corev1.PodCondition{{Type: pub.SidecarTerminated, Status: "True", LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour))}}
	}, stops, corev1.EnvVar{Name: pub.TerminateSidecarIgnoreExitEnv, Value: "true"})
	termination(t, late, "sidecar-termination-"+string(late.UID)+"-ignore")
	over := jobPod(t, "over", "", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, stops)
	byHand := &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "by-hand"},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: over.Name,
			Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "log"}}}}
	if err := kube.Create(t.Context(), byHand); !apierrors.IsBadRequest(err) {
		t.Errorf("a request by hand: got %v, want code 400", err)
	}

	virtual := jobPod(t, "virtual", pub.VirtualNode, nil, corev1.EnvVar{Name: pub.TerminateSidecarImageEnv, Value: "exit:1"})
	if err := wait(func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(virtual), virtual); err != nil {
			return err
		}
		if virtual.Spec.Containers[1].Image != "exit:1" {
			return errors.New(virtual.Spec.Containers[1].Image)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var all appsv1beta1.ContainerRecreateRequestList
	if err := kube.List(t.Context(), &all, client.InNamespace("default"),
		client.MatchingLabels{pub.RecreatePodUID: string(virtual.UID)}); err != nil {
		t.Errorf("listing the requests: %v", err)
	}
	if len(all.Items) > 0 {
		t.Errorf("requests for a pod on a virtual node: got %+v, want none", all.Items)
	}
}
