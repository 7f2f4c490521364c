package explain

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rehearse prepares the reader for many objects, one after the other, of a manager that is not there yet:
// plans are made with these flags of it, and what is listed for an object is kept until one of another
// namespace is asked about, so that the pods of a namespace are listed once and not for each of its
// workloads.
func (r *Reader) Rehearse(flags []string) {
	r.flags = append([]string{}, flags...)
	r.client = &remembering{Client: r.client, lists: map[string]client.ObjectList{}}
}

// remembering is a client that keeps lists of one namespace, and of what is in none. Who reads them must not
// write into them.
type remembering struct {
	client.Client
	namespace string
	lists     map[string]client.ObjectList
}

// List answers with what was listed before, if the same was asked. Pods of all namespaces are too many to be
// kept, and events are asked for one object at a time.
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
	key := fmt.Sprintf("%T %s %s %v %v %d %s", list, list.GetObjectKind().GroupVersionKind(), asked.Namespace, asked.LabelSelector, asked.FieldSelector,
		asked.Limit, asked.Continue)
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
