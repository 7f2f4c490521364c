package migrate

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/afloat-project/afloat/internal/plugin/change"
)

// side is the old or the new workload, and how to reach it. Its object is nil if it does not exist.
type side struct {
	mapping         *meta.RESTMapping
	client          dynamic.ResourceInterface
	rest            resource.RESTClient
	namespace, name string
	object          *unstructured.Unstructured
}

func newSide(f cmdutil.Factory, kind schema.GroupKind, namespace, name string) (*side, error) {
	mapping, err := change.Mapping(f, kind)
	if err != nil {
		return nil, err
	}

	client, err := f.DynamicClient()
	if err != nil {
		return nil, err
	}

	rest, err := f.UnstructuredClientForMapping(mapping)
	if err != nil {
		return nil, err
	}

	return &side{mapping: mapping, client: client.Resource(mapping.Resource).Namespace(namespace), rest: rest,
		namespace: namespace, name: name}, nil
}

// String returns the name of the workload, such as deployment.apps/web.
func (s *side) String() string {
	return strings.ToLower(s.mapping.GroupVersionKind.GroupKind().String()) + "/" + s.name
}

// read reads the workload. It is no error if the workload does not exist.
func (s *side) read(ctx context.Context) error {
	object, err := s.client.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.object = nil
		return nil
	} else if err != nil {
		return fmt.Errorf("reading %s: %w", s, err)
	}
	s.object = object
	return nil
}

// must reads the workload, and returns an error if it does not exist.
func (s *side) must(ctx context.Context) error {
	if err := s.read(ctx); err != nil {
		return err
	}
	if s.object == nil {
		return fmt.Errorf("%s does not exist", s)
	}
	return nil
}

// apply changes the workload and keeps the result.
func (s *side) apply(ctx context.Context, o change.Options,
	edit func(*unstructured.Unstructured) error) error {
	info := &resource.Info{Client: s.rest, Mapping: s.mapping, Namespace: s.namespace, Name: s.name,
		Object: s.object}
	if _, err := change.Apply(ctx, info, o, edit); err != nil {
		return fmt.Errorf("changing %s: %w", s, err)
	}
	changed, err := change.Document(info)
	s.object = changed
	return err
}

func (s *side) number(otherwise int64, path ...string) int64 {
	return number(s.object, otherwise, path...)
}

func number(object *unstructured.Unstructured, otherwise int64, path ...string) int64 {
	if n, ok, err := unstructured.NestedInt64(object.Object, path...); ok && err == nil {
		return n
	}
	return otherwise
}

func (s *side) replicas() int64 { return s.number(1, "spec", "replicas") }

// observed reports whether the status reflects the current spec.
func (s *side) observed() bool {
	return s.number(0, "status", "observedGeneration") >= s.object.GetGeneration()
}
