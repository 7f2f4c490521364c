package doctor

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// memory is a cluster to be read, page by page. What is in forbidden may not be.
type memory struct {
	client.Reader
	objects   []*unstructured.Unstructured
	forbidden map[string]bool
	// largest is the largest page that was asked for; 0 if one had no limit.
	largest []int64
}

func (m *memory) refuse(kind schema.GroupVersionKind) error {
	if m.forbidden[kind.Kind] {
		return apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}, "", nil)
	}
	return nil
}

// Get implements client.Reader.
func (m *memory) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind := into.GetObjectKind().GroupVersionKind()
	if err := m.refuse(kind); err != nil {
		return err
	}
	for _, object := range m.objects {
		if object.GroupVersionKind() == kind && object.GetNamespace() == key.Namespace && object.GetName() == key.Name {
			into.(*unstructured.Unstructured).Object = object.DeepCopy().Object
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
}

// List implements client.Reader.
func (m *memory) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	kind := into.GetObjectKind().GroupVersionKind()
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	if err := m.refuse(kind); err != nil {
		return err
	}
	if strings.HasSuffix(kind.Group, ".kruise.io") && installation.Find(m.objects, "CustomResourceDefinition",
		strings.ToLower(kind.Kind)+"s."+kind.Group) == nil {
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	m.largest = append(m.largest, o.Limit)
	list := into.(*unstructured.UnstructuredList)
	list.Items = nil
	for _, object := range m.objects {
		matches := object.GroupVersionKind() == kind && (o.Namespace == "" || o.Namespace == object.GetNamespace()) &&
			(o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(object.GetLabels())))
		if o.FieldSelector != nil {
			for _, r := range o.FieldSelector.Requirements() {
				matches = matches && installation.Text(object.Object, strings.Split(r.Field, ".")...) == r.Value
			}
		}
		if matches {
			list.Items = append(list.Items, *object.DeepCopy())
		}
	}
	return nil
}
