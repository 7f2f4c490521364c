package explain

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rehearse prepares the reader for many objects, one after the other, and for a manager that is not installed
// yet. The reader makes plans with these flags of the manager. It keeps the lists that it reads for an object
// until an object of another namespace follows, so that it lists the pods of a namespace only once and not
// for each workload.
func (r *Reader) Rehearse(flags []string) {
	r.flags = append([]string{}, flags...)
	r.client = &remembering{Client: r.client, lists: map[string]client.ObjectList{}}
}

// remembering is a client that caches the lists of one namespace, and those of cluster-scoped objects.
// Callers must not modify the objects in these lists.
type remembering struct {
	client.Client
	namespace string
	lists     map[string]client.ObjectList
}

// List returns the cached list of an equal request, if there is one. It does not cache pods of all
// namespaces, which are too many, and events, which are requested for one object at a time.
func (c *remembering) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	_, pods := list.(*corev1.PodList)
	if _, events := list.(*corev1.EventList); events || pods && asked.Namespace == "" {
		return c.Client.List(ctx, list, options...) //nolint:wrapcheck // this stands for the client
	}

	if asked.Namespace != "" && asked.Namespace != c.namespace {
		c.namespace = asked.Namespace
		clear(c.lists)
	}

	key := fmt.Sprintf("%T %s %s %v %v %d %s",
		list, list.GetObjectKind().GroupVersionKind(), asked.Namespace,
		asked.LabelSelector, asked.FieldSelector, asked.Limit, asked.Continue)

	if known, ok := c.lists[key]; ok {
		reflect.ValueOf(list).Elem().Set(reflect.ValueOf(known).Elem())
		return nil
	}

	if err := c.Client.List(ctx, list, options...); err != nil {
		return err //nolint:wrapcheck // this stands for the client
	}

	kept, ok := reflect.New(reflect.TypeOf(list).Elem()).Interface().(client.ObjectList)
	if ok {
		reflect.ValueOf(kept).Elem().Set(reflect.ValueOf(list).Elem())
		c.lists[key] = kept
	}

	return nil
}
