package takeover

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// gone waits until the pods of the manager are gone. Meanwhile, w observes whether their locks are renewed.
// It learns which pods were ended by their kubelet: those with a grace period, on nodes that are ready.
func (t *takeover) gone(ctx context.Context, workload *unstructured.Unstructured, w *watcher) error {
	nodes := map[string]string{}
	if err := t.wait(ctx, "the end of the manager's pods", func(ctx context.Context) (string, error) {
		live, err := t.get(ctx, referenceTo(workload))
		if err != nil {
			return "", err
		}

		if live != nil {
			if replicas, has, _ := unstructured.NestedInt64(live.Object, "spec", "replicas"); !has ||
				replicas > 0 {
				return "", t.startedAgain(live)
			}
		}

		pods, err := t.podsOf(ctx, workload)
		var names []string
		for _, pod := range pods {
			names = append(names, pod.GetName())
			if seconds := pod.GetDeletionGracePeriodSeconds(); pod.GetDeletionTimestamp() != nil &&
				seconds != nil && *seconds > 0 {
				nodes[pod.GetName()] = installation.Text(pod.Object, "spec", "nodeName")
			} else {
				delete(nodes, pod.GetName())
			}
		}

		if err == nil {
			_, err = t.see(ctx, w)
		}

		return strings.Join(names, ", "), err
	}); err != nil {
		return err
	}

	for pod, name := range nodes {
		node, err := installation.Get(ctx, t.client, schema.GroupVersionKind{Version: "v1", Kind: "Node"}, "",
			name)
		w.ended[pod] = err == nil && node != nil &&
			slices.ContainsFunc(installation.Maps(node.Object, "status", "conditions"),
				func(c map[string]any) bool { return c["type"] == "Ready" && c["status"] == "True" })
	}

	t.say("its pods are gone")
	return nil
}

// podsOf returns the pods of a Deployment that may still run. Many operators use the same label, so its
// selector also matches pods of others in the namespace, and pods with another controller are skipped. A pod
// without a controller is included, because a Deployment that was deleted without its pods may have left it.
func (t *takeover) podsOf(ctx context.Context,
	workload *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	selector, err := selectorOf(workload)
	if err != nil {
		return nil, err
	}

	var pods []*unstructured.Unstructured
	err = installation.Each(ctx, t.client, installation.Pods, func(pod *unstructured.Unstructured) error {
		if phase := installation.Text(pod.Object, "status", "phase"); phase == "Succeeded" ||
			phase == "Failed" {
			return nil
		}
		of, err := t.isOf(ctx, pod, workload)
		if of {
			pods = append(pods, pod.DeepCopy())
		}
		return err
	}, client.InNamespace(workload.GetNamespace()), client.MatchingLabelsSelector{Selector: selector})

	return pods, err
}

// isOf reports whether a pod belongs to a Deployment, or to a former one of the same name.
func (t *takeover) isOf(ctx context.Context, pod, workload *unstructured.Unstructured) (bool, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return true, nil
	}
	if owner.Kind != "ReplicaSet" {
		return false, nil
	}

	set, err := installation.Get(ctx, t.client,
		schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, pod.GetNamespace(),
		owner.Name)
	if err != nil {
		return false, err
	}

	if set != nil {
		if owner = metav1.GetControllerOf(set); owner != nil {
			return owner.Kind == workload.GetKind() && owner.Name == workload.GetName(), nil
		}
		return strings.HasPrefix(set.GetName(), workload.GetName()+"-"), nil
	}

	name, _, _ := strings.Cut(strings.TrimPrefix(owner.Name, workload.GetName()+"-"), "-")
	return owner.Name == workload.GetName()+"-"+name, nil
}
