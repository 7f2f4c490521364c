// Package pods finds the pods of a workload of any kind.
package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Clients are the methods of kubectl's factory that this package needs.
type Clients interface {
	ToRESTMapper() (meta.RESTMapper, error)
	DynamicClient() (dynamic.Interface, error)
	KubernetesClientSet() (*kubernetes.Clientset, error)
}

// Selector returns the selector for the pods of a workload. A workload without a selector selects everything,
// because only the controller of a pod counts.
func Selector(workload *unstructured.Unstructured) (labels.Selector, error) {
	found, ok, err := unstructured.NestedMap(workload.Object, "spec", "selector")
	if err != nil || !ok {
		return labels.Everything(), err
	}
	if workload.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "ReplicationController"}) {
		found = map[string]any{"matchLabels": found}
	}
	selector := metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found, &selector); err != nil {
		return nil, fmt.Errorf("the selector of %s is none of labels: %w", workload.GetName(), err)
	}
	return metav1.LabelSelectorAsSelector(&selector)
}

// Of returns the pods that the workload controls, directly or through objects that it controls, as a
// Deployment does through ReplicaSets. The pods are sorted by name.
func Of(ctx context.Context, clients Clients, workload *unstructured.Unstructured) ([]corev1.Pod, error) {
	selector, err := Selector(workload)
	if err != nil {
		return nil, err
	}

	client, err := clients.KubernetesClientSet()
	if err != nil {
		return nil, err
	}

	all, err := client.CoreV1().Pods(workload.GetNamespace()).List(ctx,
		metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("listing pods of %s: %w", workload.GetName(), err)
	}

	chain := NewChain(ctx, clients, workload)
	var own []corev1.Pod
	for i := range all.Items {
		belongs, err := chain.Leads(&all.Items[i])
		if err != nil {
			return nil, err
		}
		if belongs {
			own = append(own, all.Items[i])
		}
	}

	return own, nil
}

// Active reports whether a pod has neither finished nor is being deleted.
func Active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded &&
		pod.Status.Phase != corev1.PodFailed
}

// Chain follows the controllers of objects, and remembers which lead to a workload.
type Chain struct {
	ctx       context.Context
	clients   Clients
	namespace string
	known     map[types.UID]bool
	failed    map[types.UID]error // controllers that could not be read
}

// NewChain returns a chain to a workload. It reads controllers as long as the context lives.
func NewChain(ctx context.Context, clients Clients, workload *unstructured.Unstructured) *Chain {
	return &Chain{ctx: ctx, clients: clients, namespace: workload.GetNamespace(),
		known: map[types.UID]bool{workload.GetUID(): true}, failed: map[types.UID]error{}}
}

// Retry lets controllers that could not be read be read again.
func (c *Chain) Retry() { clear(c.failed) }

// Leads reports whether the workload controls the object, directly or through others. It returns an error if a
// controller in between cannot be read, and the same one until Retry is called.
func (c *Chain) Leads(object metav1.Object) (belongs bool, err error) {
	owner := metav1.GetControllerOf(object)
	if owner == nil {
		return false, nil
	}
	if known, ok := c.known[owner.UID]; ok {
		return known, nil
	}
	if err := c.failed[owner.UID]; err != nil {
		return false, err
	}

	c.known[owner.UID] = false // controllers that control each other end here
	defer func() {
		if err != nil {
			delete(c.known, owner.UID)
			c.failed[owner.UID] = err
		}
	}()
	mapper, err := c.clients.ToRESTMapper()
	if err != nil {
		return false, err
	}

	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return false, fmt.Errorf("controller of %s: %w", object.GetName(), err)
	}

	// The version may be one that is not served any more: the UID tells whether it is the same object.
	mapping, err := mapper.RESTMapping(gv.WithKind(owner.Kind).GroupKind())
	if meta.IsNoMatchError(err) {
		return false, nil
	} else if err != nil {
		return false, err
	}

	client, err := c.clients.DynamicClient()
	if err != nil {
		return false, err
	}

	namespace := c.namespace
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace { // such as the node of a mirror pod
		return false, nil
	}

	list, err := client.Resource(mapping.Resource).Namespace(namespace).List(c.ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + owner.Name})
	if err != nil {
		return false, fmt.Errorf("reading who controls %s: %w", object.GetName(), err)
	}

	for i := range list.Items {
		if list.Items[i].GetUID() == owner.UID {
			c.known[owner.UID], err = c.Leads(&list.Items[i])
		}
	}

	return c.known[owner.UID], err
}
