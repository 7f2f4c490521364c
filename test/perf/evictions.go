package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	budgets      = 50
	evictionPace = 100
)

// evictions measures evictions of pods of nobody, which are gone at once: those of pods that budgets protect,
// all of which may go, and those of pods in a namespace without budgets, about which nobody is asked.
func evictions(ctx context.Context, b *bench) error {
	if err := b.startManager(ctx); err != nil {
		return err
	}
	nodes, err := b.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	name := func(i int) string { return fmt.Sprintf("evicted-%d", i) }
	for _, namespace := range []string{ours, others} {
		if err := each(rounds(), func(i int) error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: map[string]string{"budget": fmt.Sprintf("b-%d", i%budgets)}},
				Spec: usualPodSpec(images[0])}
			pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = nodes.Items[i%len(nodes.Items)].Name, new(int64)
			_, err := b.kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		}); err != nil {
			return fmt.Errorf("creating pods: %w", err)
		}
	}
	for i := range budgets {
		if err := b.apply(ctx, "policy.kruise.io/v1beta1", "podunavailablebudgets", others, fmt.Sprintf(`{apiVersion: policy.kruise.io/v1beta1,
			kind: PodUnavailableBudget, metadata: {name: b-%d}, spec: {selector: {matchLabels: {budget: b-%d}}, protectTotalReplicas: %d, minAvailable: 1}}`,
			i, i, rounds()), nil); err != nil {
			return err
		}
	}
	if err := b.counted(ctx, others, rounds()); err != nil {
		return err
	}
	for _, test := range []struct{ kind, namespace string }{{"pod without a budget", ours}, {"pod of a budget", others}} {
		if err := b.paced(ctx, fmt.Sprintf("%d PodUnavailableBudgets", budgets), "evictions", evictionPace, []string{test.kind},
			func(ctx context.Context, _ string, i int) error {
				if test.namespace == others && i/budgets >= rounds()/budgets-1 { // the last pod of each stays
					return nil
				}
				return b.kube.CoreV1().Pods(test.namespace).EvictV1(ctx,
					&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: name(i)}})
			}); err != nil {
			return err
		}
	}
	return nil
}

// guarded is oneSet with a PodUnavailableBudget, of which the controller asks before it touches a pod.
func guarded(ctx context.Context, b *bench) error {
	b.guarded = true
	return oneSet(ctx, b, 1000, 10)
}

// counted waits until the budgets of a namespace have counted so many pods.
func (b *bench) counted(ctx context.Context, namespace string, n int) error {
	resource := b.sets.client.Resource(schema.GroupVersionResource{Group: "policy.kruise.io", Version: "v1beta1", Resource: "podunavailablebudgets"})
	return poll(ctx, "the budgets count their pods", time.Second, func(ctx context.Context) (bool, error) {
		list, err := resource.Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		counted := int64(0)
		for i := range list.Items {
			n, _, _ := unstructured.NestedInt64(list.Items[i].Object, "status", "currentAvailable")
			counted += n
		}
		return counted == int64(n), nil
	})
}
