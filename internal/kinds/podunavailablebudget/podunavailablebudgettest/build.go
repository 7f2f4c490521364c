// Package podunavailablebudgettest builds PodUnavailableBudgets and pods for tests of their rules, and of
// controllers that ask them.
package podunavailablebudgettest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
)

// Now is the time of decisions in tests.
var Now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// AllGates are the options with every gate on.
var AllGates = podunavailablebudget.Options{Deletes: true, Updates: true, Resizes: true}

// Budget returns a budget named web of the pods with label app=web, of which one may be out of service;
// options change it.
func Budget(options ...func(*policyv1beta1.PodUnavailableBudget)) *policyv1beta1.PodUnavailableBudget {
	one := intstr.FromInt32(1)
	budget := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
		Name: "web", UID: "budget", Generation: 1}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	budget.Spec.MaxUnavailable = &one
	for _, option := range options {
		option(budget)
	}
	return budget
}

// Rules compiles the rules of a budget that is built with the options.
func Rules(options ...func(*policyv1beta1.PodUnavailableBudget)) *podunavailablebudget.Rules {
	return podunavailablebudget.NewRules(Budget(options...))
}

// MaxUnavailable sets the number, or the percentage, of pods that may be out of service.
func MaxUnavailable(n *intstr.IntOrString) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.MaxUnavailable, b.Spec.MinAvailable = n, nil }
}

// MinAvailable sets the number, or the percentage, of pods that must stay in service.
func MinAvailable(n *intstr.IntOrString) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, n }
}

// Named names the budget.
func Named(name string) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) { b.Name, b.UID = name, types.UID(name) }
}

// Created says when the budget was created.
func Created(at time.Time) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) { b.CreationTimestamp = metav1.NewTime(at) }
}

// Target lets the budget name a workload instead of labels.
func Target(apiVersion, kind, name string) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) {
		b.Spec.Selector, b.Spec.TargetReference = nil,
			&policyv1beta1.TargetReference{APIVersion: apiVersion, Kind: kind, Name: name}
	}
}

// Protects sets the operations that the budget limits.
func Protects(
	operations ...policyv1beta1.PodUnavailableBudgetOperation,
) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.ProtectOperations = operations }
}

// Total sets how many pods are expected.
func Total(n int32) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) { b.Spec.ProtectTotalReplicas = &n }
}

// Ignores has the pods with the label not protected.
func Ignores(key, value string) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) {
		b.Spec.IgnoredPodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

// Annotated annotates the budget.
func Annotated(key, value string) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) {
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, key, value)
	}
}

// Counted gives the budget a status that was counted for its present spec.
func Counted(total, desired, current int32) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) {
		s := &b.Status
		s.ObservedGeneration, s.TotalReplicas, s.DesiredAvailable = b.Generation, total, desired
		s.CurrentAvailable, s.UnavailableAllowed = current, max(current-desired, 0)
	}
}

// Disrupted books a deletion of the pod.
func Disrupted(name string, at time.Time) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) { book(&b.Status.DisruptedPods, name, at) }
}

// Unavailable books an update of the pod.
func Unavailable(name string, at time.Time) func(*policyv1beta1.PodUnavailableBudget) {
	return func(b *policyv1beta1.PodUnavailableBudget) { book(&b.Status.UnavailablePods, name, at) }
}

func book(into *map[string]metav1.Time, name string, at time.Time) {
	if *into == nil {
		*into = map[string]metav1.Time{}
	}
	(*into)[name] = metav1.NewTime(at)
}

// Pod returns a pod in service of ReplicaSet web with label app=web, created an hour ago; options change it.
func Pod(name string, options ...func(*corev1.Pod)) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name),
		Labels:      map[string]string{"app": "web"},
		Annotations: map[string]string{}, CreationTimestamp: metav1.NewTime(Now.Add(-time.Hour)),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: &yes}}}}
	pod.Spec.Containers = []corev1.Container{{Name: "nginx", Image: "nginx:1"}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "nginx", Image: "nginx:1", ImageID: "id:1",
			ContainerID: "c://1", Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	for _, option := range options {
		option(pod)
	}

	return pod
}

// Pods are so many pods in service.
func Pods(n int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, Pod(fmt.Sprint("p", i)))
	}
	return pods
}

// NotReady makes the pod not ready.
func NotReady(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

// Terminating has the pod deleted.
func Terminating(pod *corev1.Pod) { at := metav1.NewTime(Now); pod.DeletionTimestamp = &at }

// Phase sets the phase of the pod.
func Phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// Labelled labels the pod.
func Labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

// Noted annotates the pod.
func Noted(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[key] = value }
}

// Since says when the pod was created.
func Since(at time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.CreationTimestamp = metav1.NewTime(at) }
}
