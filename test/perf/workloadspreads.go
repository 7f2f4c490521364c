package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// spreads is how many WorkloadSpreads there are; each has one workload, whose pods are created in turn.
const spreads = 20

// realPace is how many pods per second are created without dry runs: about half of what the API server can
// handle on two cores, with the writes of scheduler and simulated kubelet.
const realPace = 25

// withWorkloadSpreads measures the creation of pods that are spread, beside that of other pods in the same
// namespace. There are no dry runs, since these are not booked. The workloads are of a kind without a
// controller, so that nothing else creates or deletes their pods.
func withWorkloadSpreads(ctx context.Context, b *bench) error {
	var owners []metav1.OwnerReference
	if err := b.apply(ctx, "apiextensions.k8s.io/v1", "customresourcedefinitions", "",
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: idles.perf.example.com},
		spec: {group: perf.example.com, scope: Namespaced, names: {kind: Idle, plural: idles, singular: idle}, versions: [{name: v1, served: true, storage: true,
		schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, nil); err != nil {
		return err
	}
	if err := b.apply(ctx, "v1", "configmaps", "kruise-system",
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: kruise-configuration}, data: {
		WorkloadSpread_Watch_Custom_Workload_WhiteList: '{"workloads":[{"Group":"perf.example.com","Kind":"Idle","replicasPath":"spec.replicas"}]}'}}`, nil); err != nil {
		return err
	}
	for i := range spreads {
		var made unstructured.Unstructured
		if err := poll(ctx, "the kind without controller is served", 100*time.Millisecond, func(ctx context.Context) (bool, error) {
			err := b.apply(ctx, "perf.example.com/v1", "idles", others,
				fmt.Sprintf(`{apiVersion: perf.example.com/v1, kind: Idle, metadata: {name: idle-%d}, spec: {replicas: 10000}}`, i), &made)
			return err == nil, nil
		}); err != nil {
			return err
		}
		owners = append(owners, *metav1.NewControllerRef(&made, made.GroupVersionKind()))
		if err := poll(ctx, "the kind without controller is listed", 100*time.Millisecond, func(ctx context.Context) (bool, error) {
			err := b.apply(ctx, "apps.kruise.io/v1beta1", "workloadspreads", others,
				fmt.Sprintf(`{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {name: spread-%d},
				spec: {targetRef: {apiVersion: perf.example.com/v1, kind: Idle, name: idle-%d}, subsets: [{name: first, maxReplicas: 9000}, {name: rest}]}}`, i, i), nil)
			return err == nil, nil
		}); err != nil {
			return err
		}
	}
	create := func(ctx context.Context, name string, owner *metav1.OwnerReference) (*corev1.Pod, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "spread"}},
			Spec: usualPodSpec(images[0])}
		if owner != nil {
			pod.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		return b.kube.CoreV1().Pods(others).Create(ctx, pod, metav1.CreateOptions{})
	}
	tries := 0
	if err := poll(ctx, fmt.Sprintf("%d WorkloadSpreads are in force", spreads), 100*time.Millisecond,
		func(ctx context.Context) (bool, error) {
			tries++
			pod, err := create(ctx, fmt.Sprintf("try-%d", tries), &owners[spreads-1])
			return err == nil && pod.Annotations["apps.kruise.io/matched-workloadspread"] != "", nil
		}); err != nil {
		return err
	}
	situation := fmt.Sprintf("%d WorkloadSpreads", spreads)
	if err := b.paced(ctx, situation, "creations", realPace, []string{"pod that is spread", "pod of others"},
		func(ctx context.Context, kind string, i int) error {
			var owner *metav1.OwnerReference
			if kind == "pod that is spread" {
				owner = &owners[i/2%spreads]
			}
			pod, err := create(ctx, fmt.Sprintf("spread-%d", i), owner)
			if err == nil && owner != nil && pod.Annotations["apps.kruise.io/matched-workloadspread"] == "" {
				return errors.New("it was not spread")
			}
			return err
		}); err != nil {
		return err
	}
	grace := int64(0)
	if err := b.kube.CoreV1().Pods(others).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &grace},
		metav1.ListOptions{LabelSelector: "app=spread"}); err != nil {
		return fmt.Errorf("deleting the pods that were spread: %w", err)
	}
	resource := b.sets.client.Resource(schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1beta1",
		Resource: "workloadspreads"})
	if err := resource.Namespace(others).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("deleting WorkloadSpreads: %w", err)
	}
	return nil
}

// apply creates an object from YAML, in a namespace if one is given; it is no error if the object exists.
// into gets the API server's answer.
func (b *bench) apply(ctx context.Context, version, plural, namespace, manifest string, into *unstructured.Unstructured) error {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return fmt.Errorf("reading a version: %w", err)
	}
	resource := b.sets.client.Resource(gv.WithResource(plural))
	client := resource.Namespace(namespace)
	made, err := client.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = client.Get(ctx, object.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if into != nil {
		*into = *made
	}
	return nil
}
