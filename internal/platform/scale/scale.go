// Package scale reads the scale subresource of workloads of any kind.
package scale

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Read reads the scale of the object, of which kind, namespace and name count. The error says of which; it is
// a NotFound where the object does not exist or its kind has no such subresource.
func Read(
	ctx context.Context, from client.SubResourceReader, object *unstructured.Unstructured,
) (*autoscalingv1.Scale, error) {
	// The client reads subresources of unstructured objects into such alone.
	read, scale := &unstructured.Unstructured{}, &autoscalingv1.Scale{}
	read.SetGroupVersionKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
	err := from.Get(ctx, object, read)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(read.Object, scale)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the scale of %s %s/%s: %w", object.GetKind(), object.GetNamespace(),
			object.GetName(), err)
	}
	return scale, nil
}
