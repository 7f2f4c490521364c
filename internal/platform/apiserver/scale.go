package apiserver

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReadScale reads the scale of the object, of which only kind, namespace and name are used. It returns a NotFound
// error if the object does not exist or its kind has no scale subresource. The error names the object.
func ReadScale(
	ctx context.Context, from client.SubResourceReader, object *unstructured.Unstructured,
) (*autoscalingv1.Scale, error) {
	// The client can read subresources of unstructured objects only into unstructured objects.
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
